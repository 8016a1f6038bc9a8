// Rotary positions over a grid as in timm.
#pragma once

#include "nn/rope.h"

#include <cstdint>

namespace tessera::nn {

// Rotary positions over a grid as in timm's RotaryEmbedding: pairs of the rows' angles, then the same number
// of the columns'.
//   pixels, pixels_evenly  positions run from -1 to 1 along each side, frequencies from pi to
//                          pi * resolution / 2: in equal ratios, or in equal steps (after Perceiver)
//   cells                  positions count cells, frequencies fall by theta as in rotation_1d
enum class GridFrequencies { pixels, pixels_evenly, cells };
struct GridRotary {
  GridFrequencies frequencies = GridFrequencies::pixels;
  double resolution = 224, theta = 10000;
  int64_t trained_rows = 0, trained_columns = 0;  // cells: positions scaled to this grid; 0 = unscaled
  bool columns_first = false;
};
// Returns [rows * columns, channels / 2], channels a multiple of 4. Angles up to 350 radians are rounded to
// float32 as in timm, so sines and cosines agree to the last digit of float32 angles.
Rotation rotation_over_grid(int64_t rows, int64_t columns, int64_t channels, const GridRotary& options = {});

}  // namespace tessera::nn
