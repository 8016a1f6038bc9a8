#include "nn/relative_position.h"

#include <cmath>

#include "core/error.h"
#include "nn/init.h"
#include "nn/rope.h"

namespace tessera::nn {
namespace {

// T5's own.
constexpr int64_t kBuckets = 32, kFurthest = 128;

// [..., patches, patches] with zeros for the tokens in front.
torch::Tensor behind(int64_t prefix, const torch::Tensor& bias) {
  return torch::constant_pad_nd(bias.unsqueeze(0), {prefix, 0, prefix, 0});
}

}  // namespace

torch::Tensor relative_buckets(const torch::Tensor& offsets, bool both_sides, int64_t buckets,
                               int64_t furthest) {
  const int64_t side = both_sides ? buckets / 2 : buckets, exact = side / 2;
  check(exact >= 1 && furthest > exact, buckets, " buckets up to a distance of ", furthest,
        ": a side needs at least 2, and the furthest must lie beyond the ", exact, " exact ones");
  const torch::Tensor distance = both_sides ? offsets.abs() : (-offsets).clamp_min(0);
  // In float32 and cut off, as published: the borders of the buckets depend on it.
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
    const torch::Tensor index = bucket.flatten().to(table.device());
    return table.index_select(0, index).view({count, count, -1}).permute({2, 0, 1});
  };
  const torch::Tensor down = along(rows_, rows).view({-1, rows, 1, rows, 1});
  const torch::Tensor across = along(columns_, columns).view({-1, 1, columns, 1, columns});
  return behind(prefix, (down + across).reshape({-1, rows * columns, rows * columns}));
}

}  // namespace tessera::nn
