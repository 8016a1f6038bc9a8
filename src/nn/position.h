// Absolute positions: fixed tables, and learned tables resampled to another grid.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::nn {

// Returns the fixed 2-D sine-cosine table [rows * columns, width] of MAE (He et al. 2022): the first half of
// the channels encodes the column, the second the row. Each half is [sin, cos] of position / 10000^(i /
// (width / 4)). Width must be a multiple of 4.
torch::Tensor sincos_2d(int64_t rows, int64_t columns, int64_t width);

// The same in timm's order: [sin row, sin column, cos row, cos column], each a quarter of the channels.
torch::Tensor sincos_2d_rows_first(int64_t rows, int64_t columns, int64_t width);

// Fixed 1-D table [count, width] (Vaswani et al. 2017) with angles position / 10000^(2i / width): all sines,
// then all cosines; or sine and cosine of each angle interleaved. Width must be even.
enum class Waves { side_by_side, sines_first };
torch::Tensor sinusoids(int64_t count, int64_t width, Waves order);

enum class Resample { bicubic, bicubic_antialias, bilinear, bilinear_antialias };

// Interpolates a table [rows, columns, width] to another grid, corners not aligned; returns it unchanged if
// the grid is the same. Differentiable.
torch::Tensor resample_grid(const torch::Tensor& table, int64_t rows, int64_t columns, Resample how);

// The same for [1, prefix + rows * columns, width]; copies `prefix` leading tokens (class token …).
torch::Tensor resample_tokens(const torch::Tensor& table, int64_t prefix, int64_t old_rows,
                              int64_t old_columns, int64_t rows, int64_t columns, Resample how);

// Resamples a stored table [1, prefix + side * side, width] of a square image to this grid; undefined if it
// does not have that form.
torch::Tensor fit_square_tokens(const torch::Tensor& stored, int64_t prefix, int64_t rows, int64_t columns,
                                int64_t width, Resample how);

// x + depthwise 3x3 convolution of x over the grid: positions derived from neighbours (Chu et al. 2021,
// "Conditional positional encodings"). Parameters proj.weight [width, 1, 3, 3], proj.bias; with `nested`
// proj.0.*, as in timm.
class ConditionalPositionsImpl : public torch::nn::Module {
 public:
  explicit ConditionalPositionsImpl(int64_t width, bool nested = false);
  // [batch, rows * columns, width] -> the same.
  torch::Tensor forward(const torch::Tensor& x, int64_t rows, int64_t columns) const;
  int64_t macs() const { return weight_.numel(); }  // per token

 private:
  torch::Tensor weight_, bias_;
};
TORCH_MODULE(ConditionalPositions);

}  // namespace tessera::nn
