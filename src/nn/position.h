// Absolute positions: fixed tables, and learned ones moved to another grid.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::nn {

// Fixed 2-D sine-cosine table [rows * columns, width] as in MAE (He et al. 2022): the first half of the
// channels codes the column, the second the row; each half is [sin, cos] of position / 10000^(i / (width /
// 4)). Width must be a multiple of 4.
torch::Tensor sincos_2d(int64_t rows, int64_t columns, int64_t width);

// The same in timm's order: [sin row, sin column, cos row, cos column], a quarter of the channels each.
torch::Tensor sincos_2d_rows_first(int64_t rows, int64_t columns, int64_t width);

// Fixed 1-D table [count, width] (Vaswani et al. 2017) with angles position / 10000^(2i / width): all sines,
// then all cosines; or sine and cosine of each angle side by side. Width must be even.
enum class Waves { side_by_side, sines_first };
torch::Tensor sinusoids(int64_t count, int64_t width, Waves order);

enum class Resample { bicubic, bicubic_antialias, bilinear, bilinear_antialias };

// A table [rows, columns, width] interpolated to another grid, corners not aligned; itself if the grid is the
// same. Gradients flow through.
torch::Tensor resample_grid(const torch::Tensor& table, int64_t rows, int64_t columns, Resample how);

// The same for [1, prefix + rows * columns, width] with `prefix` leading tokens that are copied (class token
// …).
torch::Tensor resample_tokens(const torch::Tensor& table, int64_t prefix, int64_t old_rows,
                              int64_t old_columns, int64_t rows, int64_t columns, Resample how);

// A stored table [1, prefix + side * side, width] of a square image moved to this grid; undefined if it is
// not one.
torch::Tensor fit_square_tokens(const torch::Tensor& stored, int64_t prefix, int64_t rows, int64_t columns,
                                int64_t width, Resample how);

// x + depthwise 3x3 convolution of x over the grid: positions that follow from the neighbours (Chu et al.
// 2021, "Conditional positional encodings"). Parameters proj.weight [width, 1, 3, 3], proj.bias; with
// `nested` proj.0.*, as timm names them.
class ConditionalPositionsImpl : public torch::nn::Module {
 public:
  explicit ConditionalPositionsImpl(int64_t width, bool nested = false);
  // [batch, rows * columns, width] -> the same.
  torch::Tensor forward(const torch::Tensor& x, int64_t rows, int64_t columns) const;
  int64_t macs() const { return weight_.numel(); }  // a token

 private:
  torch::Tensor weight_, bias_;
};
TORCH_MODULE(ConditionalPositions);

}  // namespace tessera::nn
