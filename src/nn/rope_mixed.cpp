#include "nn/rope_mixed.h"

#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/random.h"

namespace tessera::nn {

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
