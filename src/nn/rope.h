// Rotary position embedding (Su et al. 2021), one- and two-dimensional.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <utility>

namespace tessera::nn {

// Angles of rotation for adjacent pairs of channels (2m, 2m+1): [tokens, pairs]; [heads, tokens, pairs] if
// heads differ; or [batch, heads or 1, tokens, pairs] if samples differ. Kept in float64; undefined = no
// rotation.
struct Rotation {
  Rotation() = default;
  Rotation(torch::Tensor values, double length = 1)  // NOLINT: angles read as a rotation
      : angles(std::move(values)), magnitude(length) {}
  torch::Tensor angles;
  double magnitude = 1;  // a factor on the rotated channels too (YaRN)
  bool defined() const { return angles.defined(); }
};

// Pair m is rotated by positions [tokens] float64 times frequencies[m]. On a grid, pairs alternate x, y, x,
// y, …: pairs 2m and 2m+1 are rotated by x and y [tokens] times frequencies[m].
Rotation rotation_at(const torch::Tensor& positions, const torch::Tensor& frequencies);
Rotation rotation_at(const torch::Tensor& x, const torch::Tensor& y, const torch::Tensor& frequencies);

// Pair m is rotated by position * theta^(-2m / channels). positions [tokens] float64; channels even.
Rotation rotation_1d(const torch::Tensor& positions, int64_t channels, double theta = 10000);

// The same on a grid, pairs 2m and 2m+1 with theta^(-4m / channels); channels a multiple of 4 (VisionLLaMA,
// Chu et al. 2024, eq. 5).
Rotation rotation_2d(const torch::Tensor& x, const torch::Tensor& y, int64_t channels, double theta = 10000);

// Pairs of the first half of the channels are rotated by x, those of the second half by y, both with
// theta^(-4m / channels), m = 0 … channels / 4 - 1 (DARL, Li et al. 2024, section 3.4).
Rotation rotation_halves(const torch::Tensor& x, const torch::Tensor& y, int64_t channels,
                         double theta = 10000);

// Splits one table over heads * channels into one piece per head.
Rotation split_over_heads(const Rotation& rotation, int64_t heads);

// Columns and rows of tokens `first` … `last` - 1 of a row-major grid with `width` columns, as float64. Token
// -1 is (width - 1, -1), by floor division.
struct GridPositions {
  torch::Tensor x, y;
};
GridPositions grid_positions(int64_t first, int64_t last, int64_t width);

// Rotates x [batch, heads, tokens, channels]; channels beyond the table's are unchanged. Computed in float32,
// or float64 if x is.
torch::Tensor rotate(const torch::Tensor& x, const Rotation& rotation);

// Cos and sin of the angles times the magnitude, for x: in float64 next to the angles on a CPU, else on x's device in
// the type that x is rotated in, made once for equal angles.
struct RotationTables {
  torch::Tensor cos, sin;
};
RotationTables rotation_tables(const Rotation& rotation, const torch::Tensor& x);

// Rotary positions on a grid with mixed frequencies (Li et al. 2024, DARL, section D.1): the angle of a pair
// of channels is m^T theta = x theta_x + y theta_y instead of one axis, with random theta.

// theta of every pair of every head, x and y [heads, channels / 2] float64. Its length is theta^(-2i /
// channels) for pair i, like one-dimensional frequencies. Its direction is random per pair and head. The
// paper does not specify the distribution; every call draws the same. Channels are per head and even.
struct MixedFrequencies {
  torch::Tensor x, y;
};
MixedFrequencies mixed_frequencies(int64_t heads, int64_t channels, double theta = 10000);

// Positions x and y [tokens] float64 -> angles [heads, tokens, pairs].
Rotation rotation_mixed(const torch::Tensor& x, const torch::Tensor& y, const MixedFrequencies& frequencies);

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
