#include "nn/relative_position.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "nn/init.h"
#include "nn/position.h"
#include "nn/rope.h"
#include "ops/gpu.h"

namespace tessera::nn {
namespace {

// T5's values.
constexpr int64_t kBuckets = 32, kFurthest = 128;

constexpr int64_t kClassRows = 3;  // rows for a class token

// Pads [..., patches, patches] with zeros for the tokens before the patches.
torch::Tensor behind(int64_t prefix, const torch::Tensor& bias) {
  return torch::constant_pad_nd(bias.unsqueeze(0), {prefix, 0, prefix, 0});
}

}  // namespace

torch::Tensor relative_buckets(const torch::Tensor& offsets, bool both_sides, int64_t buckets,
                               int64_t furthest) {
  const int64_t side = both_sides ? buckets / 2 : buckets, exact = side / 2;
  check(exact >= 1 && furthest > exact, buckets, " buckets up to a distance of ", furthest,
        ": a side needs at least 2, and the furthest must exceed the ", exact, " exact ones");
  const torch::Tensor distance = both_sides ? offsets.abs() : (-offsets).clamp_min(0);
  // Truncated in float32, as published, since the limits of the buckets depend on it.
  const double span = std::log(static_cast<double>(furthest) / static_cast<double>(exact));
  const torch::Tensor grown =
      (torch::log(distance.clamp_min(1).to(torch::kFloat32) / static_cast<double>(exact)) / span *
       static_cast<double>(side - exact))
          .to(torch::kInt64) +
      exact;
  const torch::Tensor bucket = torch::where(distance < exact, distance, grown.clamp_max(side - 1));
  return both_sides ? bucket + (offsets > 0).to(torch::kInt64) * side : bucket;
}

torch::Tensor alibi_slopes(int64_t heads) {
  check(heads >= 1, "ALiBi needs at least one head");
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (int64_t i = 1; i <= power; ++i)
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(power)));
  for (int64_t i = 1; i <= heads - power; ++i)
    slopes.push_back(std::exp2(-4.0 * static_cast<double>(2 * i - 1) / static_cast<double>(power)));
  return torch::tensor(slopes, torch::kFloat64);
}

torch::Tensor alibi_bias(int64_t heads, int64_t tokens) {
  const torch::Tensor place = torch::arange(tokens, torch::kFloat64);
  return alibi_slopes(heads).view({heads, 1, 1}) * -(place.unsqueeze(0) - place.unsqueeze(1)).abs();
}

torch::Tensor alibi_bias_2d(int64_t heads, int64_t prefix, int64_t rows, int64_t columns) {
  const GridPositions at = grid_positions(0, rows * columns, columns);
  const torch::Tensor distance =
      torch::hypot(at.x.unsqueeze(0) - at.x.unsqueeze(1), at.y.unsqueeze(0) - at.y.unsqueeze(1));
  return behind(prefix, alibi_slopes(heads).view({heads, 1, 1}) * -distance);
}

GridBiasImpl::GridBiasImpl(int64_t heads) {
  rows_ = register_parameter("rows", zeros({kBuckets, heads}));
  columns_ = register_parameter("columns", zeros({kBuckets, heads}));
}

torch::Tensor GridBiasImpl::forward(int64_t prefix, int64_t rows, int64_t columns) const {
  const auto along = [](const torch::Tensor& table, int64_t count) {  // [heads, count, count]
    const torch::Tensor place = torch::arange(count, torch::kInt64);
    const torch::Tensor bucket =
        relative_buckets(place.unsqueeze(0) - place.unsqueeze(1), true, kBuckets, kFurthest);
    const torch::Tensor index = ops::kept_on(table.device(), bucket.flatten());
    return table.index_select(0, index).view({count, count, -1}).permute({2, 0, 1});
  };
  const torch::Tensor down = along(rows_, rows).view({-1, rows, 1, rows, 1});
  const torch::Tensor across = along(columns_, columns).view({-1, 1, columns, 1, columns});
  return behind(prefix, (down + across).reshape({-1, rows * columns, rows * columns}));
}

int64_t offset_bias_rows(int64_t rows, int64_t columns, bool class_token) {
  return (2 * rows - 1) * (2 * columns - 1) + (class_token ? kClassRows : 0);
}

torch::Tensor offset_bias(const torch::Tensor& table, int64_t rows, int64_t columns, bool class_token) {
  const int64_t patches = rows * columns, tokens = patches + (class_token ? 1 : 0);
  check(table.dim() == 2 && table.size(0) == offset_bias_rows(rows, columns, class_token),
        "a table of relative positions ", table.sizes(), " does not fit a grid of ", rows, " x ", columns);
  const auto whole = torch::TensorOptions(torch::kInt64).device(table.device());
  const torch::Tensor patch = torch::arange(patches, whole), row = patch.div(columns, "floor"),
                      column = patch.remainder(columns);
  const torch::Tensor down = row.unsqueeze(1) - row + (rows - 1);
  const torch::Tensor across = column.unsqueeze(1) - column + (columns - 1);
  torch::Tensor index = down * (2 * columns - 1) + across;  // by query and key
  if (class_token) {
    index = torch::constant_pad_nd(index, {1, 0, 1, 0});
    index.select(0, 0).fill_(table.size(0) - 3);
    index.select(1, 0).fill_(table.size(0) - 2);
    index[0][0].fill_(table.size(0) - 1);
  }
  return table.index_select(0, index.flatten()).view({tokens, tokens, -1}).permute({2, 0, 1}).unsqueeze(0);
}

torch::Tensor resample_offset_bias(const torch::Tensor& table, int64_t old_rows, int64_t old_columns,
                                   int64_t rows, int64_t columns, bool class_token) {
  if (old_rows == rows && old_columns == columns) return table;
  const int64_t down = 2 * old_rows - 1, across = 2 * old_columns - 1, heads = table.size(1);
  const torch::Tensor grid = table.slice(0, 0, down * across).reshape({down, across, heads});
  const torch::Tensor moved =
      resample_grid(grid, 2 * rows - 1, 2 * columns - 1, Resample::bicubic).reshape({-1, heads});
  return class_token ? torch::cat({moved, table.slice(0, down * across)}) : moved;
}

torch::Tensor fit_offset_bias(const torch::Tensor& stored, int64_t rows, int64_t columns, int64_t heads,
                              bool class_token) {
  if (stored.dim() != 2 || stored.size(1) != heads) return {};
  const int64_t offsets = stored.size(0) - (class_token ? kClassRows : 0);
  const auto side =
      static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(std::max<int64_t>(offsets, 0)))));
  if (side % 2 == 0 || side * side != offsets) return {};
  return resample_offset_bias(stored, (side + 1) / 2, (side + 1) / 2, rows, columns, class_token);
}

}  // namespace tessera::nn
