// What a set is, and what its pixels look like on average.
#pragma once

#include <array>
#include <cstdint>

#include "data/base/source.h"

namespace tessera::data {

struct SideRange {
  int least = 0, median = 0, most = 0;
};

struct PixelStatistics {
  int64_t images = 0;  // that were read
  // Of red, green, blue in [0, 1]. Each image counts alike, whatever its size, as it does in training.
  std::array<double, 3> mean{}, std{};
  SideRange width, height;
};

// Of `count` images drawn without replacement (all, if there are fewer); the draw depends on the size of
// the set alone. Images that cannot be read are left out.
PixelStatistics pixel_statistics(const Source& source, int64_t count);

// `count` indices drawn without replacement by (seed, "preview"), in ascending order; all if there are fewer.
std::vector<int64_t> draw_indices(const Source& source, int64_t count, uint64_t seed);

}  // namespace tessera::data
