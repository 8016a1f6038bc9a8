// Normalisation of the last axis.
#pragma once

#include "ops/torch.h"

namespace tessera::ops {

// (x - mean) / sqrt(variance + eps) * weight + bias. On a CPU one pass, with gradients an autograd node, that
// gives what the linear layer behind it takes (bfloat16 under autocast); else composed of ATen's operations.
torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                         double eps);

// x / sqrt(mean(x^2) + eps) * weight.
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps);

}  // namespace tessera::ops
