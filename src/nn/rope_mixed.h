// Rotary positions on a grid with mixed frequencies (Li et al. 2024, DARL, section D.1): a pair of channels is rotated
// by m^T theta = x theta_x + y theta_y instead of by one axis, with theta drawn at random.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/rope.h"

namespace tessera::nn {

// theta of every pair of every head, x and y [heads, channels / 2] float64: of length theta^(-2i / channels) for pair
// i, as one-dimensional frequencies are, and of a direction drawn for each pair and head. The paper does not say how
// it draws; every call draws the same. Channels of a head, even.
struct MixedFrequencies {
  torch::Tensor x, y;
};
MixedFrequencies mixed_frequencies(int64_t heads, int64_t channels, double theta = 10000);

// Positions x and y [tokens] float64 -> angles [heads, tokens, pairs].
Rotation rotation_mixed(const torch::Tensor& x, const torch::Tensor& y, const MixedFrequencies& frequencies);

}  // namespace tessera::nn
