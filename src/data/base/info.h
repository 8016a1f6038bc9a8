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
};

// Computes them over `count` images drawn without replacement (all, if there are fewer). The draw depends
// only on the size of the set. Skips unreadable images.
PixelStatistics pixel_statistics(const Source& source, int64_t count);

// Returns `count` indices drawn without replacement by (seed, "preview"), in ascending order; all if there
// are fewer.
std::vector<int64_t> draw_indices(const Source& source, int64_t count, uint64_t seed);

}  // namespace tessera::data
