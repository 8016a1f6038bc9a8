// Pixel statistics of a set.
#pragma once

#include <array>
#include <cstdint>

#include "data/base/source.h"

namespace tessera::data {

struct SideRange {
  int least = 0, median = 0, most = 0;
};

struct PixelStatistics {
  int64_t images = 0;  // images that were read
  // For red, green, blue in [0, 1]. Each image has the same weight, whatever its size, as in training.
  std::array<double, 3> mean{}, std{};
  SideRange width, height;
  int64_t oriented = 0;         // images with an EXIF orientation, which is applied
  int64_t nearly_constant = 0;  // see below
};

// True if the pixels of each channel are within kFewLevels of each other, so that the image is almost
// uniform: 12-bit values stored in 16 bits, masks read as images, broken exports.
inline constexpr int kFewLevels = 16;  // of 256
bool nearly_constant(const Image& image);

// True if a sample's image has an EXIF orientation other than upright.
bool has_orientation(const RawSample& sample);

// Computes them over `count` images drawn without replacement (all, if there are fewer). The draw depends
// only on the size of the set. Skips unreadable images.
PixelStatistics pixel_statistics(const Source& source, int64_t count);

// Returns `count` indices drawn without replacement by (seed, "preview"), in ascending order; all if there
// are fewer.
std::vector<int64_t> draw_indices(const Source& source, int64_t count, uint64_t seed);

}  // namespace tessera::data
