#include "nn/rope.h"

#include "core/error.h"

namespace tessera::nn {
namespace {

torch::Tensor doubles(int64_t first, int64_t last, int64_t step = 1) {
  return torch::arange(first, last, step, torch::TensorOptions().dtype(torch::kFloat64));
}

}  // namespace

Rotation rotation_1d(const torch::Tensor& positions, int64_t channels, double theta) {
  check(channels % 2 == 0, "rotary positions turn pairs of channels, there are ", channels);
  const torch::Tensor frequency = torch::pow(theta, doubles(0, channels, 2) / -static_cast<double>(channels));
  return {torch::outer(positions, frequency)};
}

Rotation rotation_2d(const torch::Tensor& x, const torch::Tensor& y, int64_t channels, double theta) {
  check(channels % 4 == 0,
        "two-dimensional rotary positions need a multiple of 4 channels a head, there are ", channels);
  const torch::Tensor frequency = torch::pow(theta, doubles(0, channels, 4) / -static_cast<double>(channels));
  return {torch::stack({torch::outer(x, frequency), torch::outer(y, frequency)}, -1).flatten(1)};
}

Rotation split_over_heads(const Rotation& rotation, int64_t heads) {
  const int64_t tokens = rotation.angles.size(0), pairs = rotation.angles.size(1);
  check(pairs % heads == 0, pairs, " pairs of channels cannot be split over ", heads, " heads");
  return {rotation.angles.view({tokens, heads, pairs / heads}).transpose(0, 1).contiguous()};
}

GridPositions grid_positions(int64_t first, int64_t last, int64_t width) {
  const torch::Tensor token = doubles(first, last);
  const torch::Tensor row = torch::floor(token / static_cast<double>(width));
  return {token - row * static_cast<double>(width), row};
}

torch::Tensor rotate(const torch::Tensor& x, const Rotation& rotation) {
  if (!rotation.defined()) return x;
  const int64_t channels = 2 * rotation.angles.size(-1);
  const auto wide = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const torch::Tensor pairs = x.slice(-1, 0, channels).to(wide).unflatten(-1, {channels / 2, 2});
  const torch::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
  const torch::Tensor angles = rotation.angles.to(x.device());
  const torch::Tensor cos = angles.cos().to(wide), sin = angles.sin().to(wide);
  const torch::Tensor turned =
      torch::stack({a * cos - b * sin, a * sin + b * cos}, -1).flatten(-2).to(x.scalar_type());
  return channels == x.size(-1) ? turned : torch::cat({turned, x.slice(-1, channels)}, -1);
}

}  // namespace tessera::nn
