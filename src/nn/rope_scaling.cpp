#include "nn/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace tessera::nn {
namespace {

constexpr double kFullRotation = 2 * std::numbers::pi;

torch::Tensor plain_frequencies(int64_t channels, double theta) {
  return torch::pow(theta, torch::arange(0, channels, 2, torch::kFloat64) / -static_cast<double>(channels));
}

// Frequencies with share 1 are unchanged, those with share 0 are divided by the factor.
torch::Tensor blend(const torch::Tensor& frequency, const torch::Tensor& share, double factor) {
  return frequency * share + frequency / factor * (1 - share);
}

torch::Tensor yarn(const torch::Tensor& frequency, int64_t channels, double theta, const RopeScaling& s) {
  const auto width = static_cast<double>(channels);
  // Returns the pair with this number of rotations over the context length of training.
  const auto pair = [&](double rotations) {
    return width * std::log(s.trained / (rotations * kFullRotation)) / (2 * std::log(theta));
  };
  const double from = pair(s.fast), to = pair(s.slow);
  const double first = std::max(s.whole_pairs ? std::floor(from) : from, 0.0);
  const double last = std::min(s.whole_pairs ? std::ceil(to) : to, width - 1);
  const torch::Tensor place = torch::arange(channels / 2, torch::kFloat64);
  const torch::Tensor ramp = ((place - first) / (last == first ? 1e-3 : last - first)).clamp(0, 1);
  return blend(frequency, 1 - ramp, s.factor);
}

torch::Tensor llama3(const torch::Tensor& frequency, const RopeScaling& s) {
  const torch::Tensor rotations = s.trained * frequency / kFullRotation;
  return blend(frequency, ((rotations - s.low_frequency) / (s.high_frequency - s.low_frequency)).clamp(0, 1),
               s.factor);
}

torch::Tensor longrope(const torch::Tensor& frequency, const RopeScaling& s, int64_t length) {
  const bool is_long = static_cast<double>(length) > s.trained;
  const std::vector<double>& factors = is_long ? s.long_factors : s.short_factors;
  check(std::ssize(factors) == frequency.size(0), "rotary scaling 'longrope' has ", factors.size(),
        is_long ? " long" : " short", " factors for ", frequency.size(0), " pairs of channels");
  return frequency / torch::tensor(factors, torch::kFloat64);
}

}  // namespace

torch::Tensor rotary_frequencies(int64_t channels, double theta, const RopeScaling& s, int64_t length) {
  check(channels >= 2 && channels % 2 == 0, "rotary positions need an even number of channels, not ",
        channels);
  const torch::Tensor frequency = plain_frequencies(channels, theta);
  if (s.kind == RopeScalingKind::none) return frequency;
  check(theta > 1 && s.factor >= 1, "rotary frequencies: theta ", theta, " must be over 1, the factor ",
        s.factor, " at least 1");
  const auto width = static_cast<double>(channels);
  const auto stretched = [&](double by) {
    check(channels > 2, "NTK-aware scaling needs more than one pair of channels");
    return plain_frequencies(channels, theta * std::pow(by, width / (width - 2)));
  };
  if (s.kind == RopeScalingKind::linear) return frequency / s.factor;
  if (s.kind == RopeScalingKind::ntk) return stretched(s.factor);
  check(s.trained > 0, "rotary scaling '", name_of(s.kind), "' needs the context length of training");
  if (s.kind == RopeScalingKind::dynamic) {
    const double reach = std::max(static_cast<double>(length), s.trained);
    return stretched(s.factor * reach / s.trained - (s.factor - 1));
  }
  if (s.kind == RopeScalingKind::longrope) return longrope(frequency, s, length);
  return s.kind == RopeScalingKind::yarn ? yarn(frequency, channels, theta, s) : llama3(frequency, s);
}

double rotary_magnitude(const RopeScaling& scaling) {
  const bool yarn = scaling.kind == RopeScalingKind::yarn;
  if (!yarn && scaling.kind != RopeScalingKind::longrope) return 1;
  if (scaling.magnitude > 0) return scaling.magnitude;
  if (yarn) return yarn_magnitude(scaling.factor);
  return scaling.factor > 1 ? std::sqrt(1 + std::log(scaling.factor) / std::log(scaling.trained)) : 1;
}

double yarn_magnitude(double factor, double weight) {
  return factor > 1 ? 0.1 * weight * std::log(factor) + 1 : 1;
}

}  // namespace tessera::nn
