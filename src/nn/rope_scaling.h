// Rotary frequencies for sequences longer than in training, and other layouts of the same rotation.
#pragma once

#include "nn/rope.h"

#include <cstdint>
#include <vector>

#include "core/config.h"

namespace tessera::nn {

enum class RopeScalingKind { none, linear, ntk, yarn, llama3, dynamic, longrope };

// How the frequencies theta^(-2m / channels) change for a context length `factor` times as long:
//   linear   all divided by `factor` (Chen et al. 2023)
//   ntk      theta * factor^(d / (d - 2))
//   dynamic  ntk with a factor that grows with the length: none up to `trained`, then
//            factor * length / trained - (factor - 1)
//   yarn frequencies with more than `fast` rotations over `trained` positions are kept, those with fewer than
//            `slow` are divided, with a ramp between (Peng et al. 2023)
//   llama3   the same idea with wavelengths: shorter than trained / high_frequency stay, longer than
//            trained / low_frequency are divided
//   longrope each pair is divided by its own factor, found by search: from `short_factors` up to `trained`
//            positions, from `long_factors` beyond (Ding et al. 2024)
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;
  double trained = 0;  // context length of training: dynamic, yarn, llama3, longrope
  double fast = 32, slow = 1;
  bool whole_pairs = true;  // yarn: the ramp begins and ends at a pair, not between pairs
  double low_frequency = 1, high_frequency = 4;
  std::vector<double> short_factors = {}, long_factors = {};  // per pair
  double magnitude = 0;  // factor on yarn's and longrope's cosines and sines; 0: rotary_magnitude()'s default
};

// Returns [channels / 2] float64, for rotation_at (nn/rope.h) and `length` positions (dynamic, longrope).
// Throws if the numbers of pairs and factors differ.
torch::Tensor rotary_frequencies(int64_t channels, double theta, const RopeScaling& scaling = {},
                                 int64_t length = 0);
// Returns the factor of cosines and sines (Rotation::magnitude): yarn_magnitude(factor) for yarn, sqrt(1 +
// ln(factor) / ln(trained)) for longrope, else 1.
double rotary_magnitude(const RopeScaling& scaling);
// 0.1 weight ln(factor) + 1, or 1 if the factor is at most 1.
double yarn_magnitude(double factor, double weight = 1);

}  // namespace tessera::nn

template <>
struct tessera::EnumNames<tessera::nn::RopeScalingKind> {
  static constexpr std::array names = {"none", "linear", "ntk", "yarn", "llama3", "dynamic", "longrope"};
};
