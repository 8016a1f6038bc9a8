// Rotary frequencies for sequences longer than those of training, and other layouts of the same rotation.
#pragma once

#include "nn/rope.h"

#include <cstdint>

#include "core/config.h"

namespace tessera::nn {

enum class RopeScalingKind { none, linear, ntk, yarn, llama3, dynamic };

// How the frequencies theta^(-2m / channels) change so that `factor` times as many positions fit:
//   linear   all divided by `factor` (Chen et al. 2023)
//   ntk      theta * factor^(d / (d - 2))
//   dynamic  ntk with a factor that grows with the length: none up to `trained`, then
//            factor * length / trained - (factor - 1)
//   yarn     those that make more than `fast` rotations over `trained` positions stay, those that make fewer
//            than `slow` are divided, a ramp between (Peng et al. 2023)
//   llama3   the same idea with wavelengths: shorter than trained / high_frequency stay, longer than
//            trained / low_frequency are divided
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;
  double trained = 0;  // positions of training: dynamic, yarn, llama3
  double fast = 32, slow = 1;
  double low_frequency = 1, high_frequency = 4;
};

// [channels / 2] float64, for rotation_at (nn/rope.h); `length` positions are to fit (dynamic).
torch::Tensor rotary_frequencies(int64_t channels, double theta, const RopeScaling& scaling = {},
                                 int64_t length = 0);
// The factor of yarn's cosines and sines (Rotation::magnitude): 0.1 ln(factor) + 1; 1 for the others.
double rotary_magnitude(const RopeScaling& scaling);

}  // namespace tessera::nn

template <>
struct tessera::EnumNames<tessera::nn::RopeScalingKind> {
  static constexpr std::array names = {"none", "linear", "ntk", "yarn", "llama3", "dynamic"};
};
