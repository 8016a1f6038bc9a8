#include "nn/position.h"

#include <cmath>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::nn {

namespace {

// Returns the angles of positions 0 … count - 1, [count, waves].
torch::Tensor wave_angles(int64_t count, int64_t waves) {
  const auto options = torch::TensorOptions().dtype(torch::kFloat64);
  const torch::Tensor frequency =
      torch::pow(10000.0, torch::arange(waves, options) / -static_cast<double>(waves));
  return torch::outer(torch::arange(count, options), frequency);
}

// Sines and cosines of the columns' and the rows' angles, [rows, columns, width / 4] each, as views per side.
struct GridWaves {
  torch::Tensor column_sin, column_cos, row_sin, row_cos;
};

GridWaves grid_waves(int64_t rows, int64_t columns, int64_t width) {
  check(width % 4 == 0, "sine-cosine positions need a width that is a multiple of 4, not ", width);
  const std::vector<int64_t> shape{rows, columns, width / 4};
  const auto spread = [&](const torch::Tensor& wave) { return wave.to(torch::kFloat32).expand(shape); };
  const torch::Tensor column = wave_angles(columns, width / 4).unsqueeze(0),
                      row = wave_angles(rows, width / 4).unsqueeze(1);
  return {spread(column.sin()), spread(column.cos()), spread(row.sin()), spread(row.cos())};
}

torch::Tensor table_of(const std::vector<torch::Tensor>& parts) { return torch::cat(parts, 2).flatten(0, 1); }

}  // namespace

torch::Tensor sincos_2d(int64_t rows, int64_t columns, int64_t width) {
  const GridWaves w = grid_waves(rows, columns, width);
  return table_of({w.column_sin, w.column_cos, w.row_sin, w.row_cos});
}

torch::Tensor sincos_2d_rows_first(int64_t rows, int64_t columns, int64_t width) {
  const GridWaves w = grid_waves(rows, columns, width);
  return table_of({w.row_sin, w.column_sin, w.row_cos, w.column_cos});
}

torch::Tensor sinusoids(int64_t count, int64_t width, Waves order) {
  check(width % 2 == 0, "sinusoids need an even width, not ", width);
  const torch::Tensor angle = wave_angles(count, width / 2);
  const torch::Tensor table = order == Waves::sines_first
                                  ? torch::cat({angle.sin(), angle.cos()}, 1)
                                  : torch::stack({angle.sin(), angle.cos()}, 2).flatten(1);
  return table.to(torch::kFloat32);
}

torch::Tensor resample_grid(const torch::Tensor& table, int64_t rows, int64_t columns, Resample how) {
  if (table.size(0) == rows && table.size(1) == columns) return table;
  const torch::Tensor planes = table.permute({2, 0, 1}).unsqueeze(0);  // [1, width, rows, columns]
  const std::vector<int64_t> size{rows, columns};
  torch::Tensor moved;
  switch (how) {
    case Resample::bicubic:
      moved = at::upsample_bicubic2d(planes, size, false);
      break;
    case Resample::bicubic_antialias:
      moved = at::_upsample_bicubic2d_aa(planes, size, false);
      break;
    case Resample::bilinear:
      moved = at::upsample_bilinear2d(planes, size, false);
      break;
    case Resample::bilinear_antialias:
      moved = at::_upsample_bilinear2d_aa(planes, size, false);
      break;
  }
  return moved.squeeze(0).permute({1, 2, 0});
}

torch::Tensor resample_tokens(const torch::Tensor& table, int64_t prefix, int64_t old_rows,
                              int64_t old_columns, int64_t rows, int64_t columns, Resample how) {
  check(table.size(1) == prefix + old_rows * old_columns, "position table has ", table.size(1),
        " entries, must have ", prefix, " + ", old_rows, " x ", old_columns);
  if (old_rows == rows && old_columns == columns) return table;
  const int64_t width = table.size(2);
  const torch::Tensor grid = table.slice(1, prefix).view({old_rows, old_columns, width});
  const torch::Tensor moved = resample_grid(grid, rows, columns, how).reshape({1, rows * columns, width});
  return prefix > 0 ? torch::cat({table.slice(1, 0, prefix), moved}, 1) : moved;
}

torch::Tensor fit_square_tokens(const torch::Tensor& stored, int64_t prefix, int64_t rows, int64_t columns,
                                int64_t width, Resample how) {
  if (stored.dim() != 3 || stored.size(0) != 1 || stored.size(2) != width || stored.size(1) <= prefix)
    return {};
  const auto side =
      static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(stored.size(1) - prefix))));
  if (side * side + prefix != stored.size(1)) return {};
  return resample_tokens(stored, prefix, side, side, rows, columns, how);
}

ConditionalPositionsImpl::ConditionalPositionsImpl(int64_t width, bool nested) {
  auto owner = register_module("proj", std::make_shared<torch::nn::Module>());
  if (nested) owner = owner->register_module("0", std::make_shared<torch::nn::Module>());
  weight_ = owner->register_parameter("weight", zeros({width, 1, 3, 3}));
  bias_ = owner->register_parameter("bias", zeros({width}));
}

torch::Tensor ConditionalPositionsImpl::forward(const torch::Tensor& x, int64_t rows, int64_t columns) const {
  const int64_t batch = x.size(0), width = x.size(2);
  const torch::Tensor grid = x.reshape({batch, rows, columns, width}).permute({0, 3, 1, 2});
  const torch::Tensor near =
      torch::conv2d(grid, weight_, bias_, at::IntArrayRef{1}, at::IntArrayRef{1}, at::IntArrayRef{1}, width);
  return x + near.permute({0, 2, 3, 1}).reshape(x.sizes());
}

}  // namespace tessera::nn
