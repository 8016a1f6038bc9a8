#include "nn/rope.h"

#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/random.h"
#include "ops/attention.h"
#include "ops/gpu.h"

namespace tessera::nn {
namespace {

torch::Tensor doubles(int64_t first, int64_t last, int64_t step = 1) {
  return torch::arange(first, last, step, torch::TensorOptions().dtype(torch::kFloat64));
}

}  // namespace

Rotation rotation_at(const torch::Tensor& positions, const torch::Tensor& frequencies) {
  return {torch::outer(positions, frequencies)};
}

Rotation rotation_at(const torch::Tensor& x, const torch::Tensor& y, const torch::Tensor& frequencies) {
  return {torch::stack({torch::outer(x, frequencies), torch::outer(y, frequencies)}, -1).flatten(1)};
}

Rotation rotation_1d(const torch::Tensor& positions, int64_t channels, double theta) {
  check(channels % 2 == 0, "rotary positions need an even number of channels, not ", channels);
  return rotation_at(positions, torch::pow(theta, doubles(0, channels, 2) / -static_cast<double>(channels)));
}

Rotation rotation_2d(const torch::Tensor& x, const torch::Tensor& y, int64_t channels, double theta) {
  check(channels % 4 == 0, "two-dimensional rotary positions need a multiple of 4 channels per head, not ",
        channels);
  return rotation_at(x, y, torch::pow(theta, doubles(0, channels, 4) / -static_cast<double>(channels)));
}

Rotation rotation_halves(const torch::Tensor& x, const torch::Tensor& y, int64_t channels, double theta) {
  check(channels % 4 == 0, "two-dimensional rotary positions need a multiple of 4 channels per head, not ",
        channels);
  return {torch::cat({rotation_1d(x, channels / 2, theta).angles, rotation_1d(y, channels / 2, theta).angles},
                     1)};
}

Rotation split_over_heads(const Rotation& rotation, int64_t heads) {
  const int64_t tokens = rotation.angles.size(0), pairs = rotation.angles.size(1);
  check(pairs % heads == 0, pairs, " pairs of channels cannot be split over ", heads, " heads");
  return {rotation.angles.view({tokens, heads, pairs / heads}).transpose(0, 1).contiguous(),
          rotation.magnitude};
}

GridPositions grid_positions(int64_t first, int64_t last, int64_t width) {
  const torch::Tensor token = doubles(first, last);
  const torch::Tensor row = torch::floor(token / static_cast<double>(width));
  return {token - row * static_cast<double>(width), row};
}

RotationTables rotation_tables(const Rotation& rotation, const torch::Tensor& x) {
  const auto wide = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const auto make = [&](const torch::Tensor& angles) {
    std::vector<torch::Tensor> tables = {angles.cos() * rotation.magnitude,
                                         angles.sin() * rotation.magnitude};
    if (!x.is_cpu())
      for (torch::Tensor& table : tables) table = table.to(torch::TensorOptions(x.device()).dtype(wide));
    return tables;
  };
  const char* purpose = wide == torch::kFloat64 ? "rotation in float64" : "rotation";
  const auto tables = rotation.angles.dim() == 4  // of each sample: other ones in the next pass
                          ? make(rotation.angles)
                          : ops::kept_on(x.device(), purpose, rotation.angles, rotation.magnitude, make);
  return {tables[0], tables[1]};
}

torch::Tensor rotate(const torch::Tensor& x, const Rotation& rotation) {
  if (!rotation.defined()) return x;
  const auto wide = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const RotationTables tables = rotation_tables(rotation, x);
  return ops::rotate_pairs(x, tables.cos.to(x.device(), wide), tables.sin.to(x.device(), wide));
}

MixedFrequencies mixed_frequencies(int64_t heads, int64_t channels, double theta) {
  check(heads > 0 && channels > 0 && channels % 2 == 0,
        "rotary positions need an even number of channels per head, not ", channels, " for ", heads,
        " heads");
  const int64_t pairs = channels / 2;
  MixedFrequencies drawn{torch::empty({heads, pairs}, torch::kFloat64),
                         torch::empty({heads, pairs}, torch::kFloat64)};
  auto x = drawn.x.accessor<double, 2>(), y = drawn.y.accessor<double, 2>();
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t i = 0; i < pairs; ++i) {
      RandomStream stream(0, "mixed rotary frequencies", static_cast<uint64_t>(head),
                          static_cast<uint64_t>(i));
      const double length = std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(channels));
      const double direction = stream.uniform(0, 2 * std::numbers::pi);
      x[head][i] = length * std::cos(direction);
      y[head][i] = length * std::sin(direction);
    }
  return drawn;
}

Rotation rotation_mixed(const torch::Tensor& x, const torch::Tensor& y, const MixedFrequencies& frequencies) {
  const auto along = [](const torch::Tensor& positions, const torch::Tensor& of_pairs) {
    return positions.view({1, -1, 1}) * of_pairs.to(positions.device()).unsqueeze(1);
  };
  return {along(x, frequencies.x) + along(y, frequencies.y)};
}

}  // namespace tessera::nn
