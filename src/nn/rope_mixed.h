// Rotary positions on a grid with mixed frequencies (Li et al. 2024, DARL, section D.1): the angle of a pair
// of channels is m^T theta = x theta_x + y theta_y instead of one axis, with random theta.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/rope.h"

namespace tessera::nn {

// theta of every pair of every head, x and y [heads, channels / 2] float64. Its length is theta^(-2i /
// channels) for pair i, like one-dimensional frequencies. Its direction is random per pair and head. The
// paper does not specify the distribution; every call draws the same. Channels are per head and even.
struct MixedFrequencies {
  torch::Tensor x, y;
};
MixedFrequencies mixed_frequencies(int64_t heads, int64_t channels, double theta = 10000);

// Positions x and y [tokens] float64 -> angles [heads, tokens, pairs].
Rotation rotation_mixed(const torch::Tensor& x, const torch::Tensor& y, const MixedFrequencies& frequencies);

}  // namespace tessera::nn
