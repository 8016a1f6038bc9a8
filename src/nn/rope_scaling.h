// Rotary frequencies for sequences longer than those of training, and other layouts of the same rotation.
#pragma once

#include "nn/rope.h"

#include <cstdint>
#include <vector>

#include "core/config.h"

namespace tessera::nn {

enum class RopeScalingKind { none, linear, ntk, yarn, llama3, dynamic, longrope };

// How the frequencies theta^(-2m / channels) change so that `factor` times as many positions fit:
//   linear   all divided by `factor` (Chen et al. 2023)
//   ntk      theta * factor^(d / (d - 2))
//   dynamic  ntk with a factor that grows with the length: none up to `trained`, then
//            factor * length / trained - (factor - 1)
//   yarn     those that make more than `fast` rotations over `trained` positions stay, those that make fewer
//            than `slow` are divided, a ramp between (Peng et al. 2023)
//   llama3   the same idea with wavelengths: shorter than trained / high_frequency stay, longer than
//            trained / low_frequency are divided
//   longrope each pair divided by a number of its own, found by search: one of `short_factors` up to `trained`
//            positions, of `long_factors` beyond (Ding et al. 2024)
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;
  double trained = 0;  // positions of training: dynamic, yarn, llama3, longrope
  double fast = 32, slow = 1;
  bool whole_pairs = true;  // yarn: the ramp begins and ends at a pair, not between two
  double low_frequency = 1, high_frequency = 4;
  std::vector<double> short_factors = {}, long_factors = {};  // of each pair
  double magnitude = 0;  // of yarn's and longrope's cosines and sines; 0 = as rotary_magnitude() has it
};

// [channels / 2] float64, for rotation_at (nn/rope.h); `length` positions are to fit (dynamic, longrope). Fails where
// the pairs and their factors are not as many.
torch::Tensor rotary_frequencies(int64_t channels, double theta, const RopeScaling& scaling = {},
                                 int64_t length = 0);
// The factor of cosines and sines (Rotation::magnitude): yarn_magnitude(factor) of yarn, sqrt(1 + ln(factor) /
// ln(trained)) of longrope, 1 of the others.
double rotary_magnitude(const RopeScaling& scaling);
// 0.1 weight ln(factor) + 1, 1 where the factor is no more.
double yarn_magnitude(double factor, double weight = 1);

}  // namespace tessera::nn

template <>
struct tessera::EnumNames<tessera::nn::RopeScalingKind> {
  static constexpr std::array names = {"none", "linear", "ntk", "yarn", "llama3", "dynamic", "longrope"};
};
