// Normalisation of the last axis.
#pragma once

#include "ops/torch.h"

namespace tessera::ops {

// LayerNorm, (x - mean) / sqrt(variance + eps) * weight + bias, or RMSNorm if not `centred`, x /
// sqrt(mean(x^2) + eps) * weight.
struct NormParameters {
  torch::Tensor weight = {}, bias = {};  // [width], or [samples, width] of x [samples, …]; maybe no bias
  double eps = 1e-6;
  bool centred = true;
  bool defined() const { return weight.defined(); }
};

// On a CPU one pass, with gradients an autograd node, that gives what the linear layer behind it takes
// (bfloat16 under autocast); else composed of ATen's operations.
torch::Tensor norm(const torch::Tensor& x, const NormParameters& parameters);
// Throws where the weight, or the bias if there is one, has not a number for each of x's last axis.
void check_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace tessera::ops
