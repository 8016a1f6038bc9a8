// What a set is, and what its pixels look like on average.
#pragma once

#include <array>
#include <cstdint>

#include "data/source.h"

namespace tessera::data {

struct PixelStatistics {
  int64_t pictures = 0;                 // that were read
  std::array<double, 3> mean{}, std{};  // of red, green, blue in [0, 1], over all pixels
  double mean_width = 0, mean_height = 0;
  int min_width = 0, max_width = 0, min_height = 0, max_height = 0;
};

// Of `count` pictures drawn without replacement (all, if there are fewer); the draw depends on the size of
// the set alone. Pictures that cannot be read are left out.
PixelStatistics pixel_statistics(const Source& source, int64_t count);

// `count` indices drawn without replacement by (seed, "preview"), in ascending order; all if there are fewer.
std::vector<int64_t> draw_indices(const Source& source, int64_t count, uint64_t seed);

}  // namespace tessera::data
