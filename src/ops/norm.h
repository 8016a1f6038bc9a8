// Normalisation of the last axis.
#pragma once

#include "ops/torch.h"

namespace tessera::ops {

// LayerNorm, (x - mean) / sqrt(variance + eps) * weight + bias, or RMSNorm if not `centred`: x /
// sqrt(mean(x^2) + eps) * weight.
struct NormParameters {
  torch::Tensor weight = {}, bias = {};  // [width], or [samples, width] for x [samples, …]; bias optional
  double eps = 1e-6;
  bool centred = true;
  bool defined() const { return weight.defined(); }
};

// On a CPU it is one pass, and with gradients an autograd node; the result has the type that the next linear
// layer reads (bfloat16 under autocast). Otherwise composed of ATen operations.
torch::Tensor norm(const torch::Tensor& x, const NormParameters& parameters);
// Throws if the weight, or a given bias, does not have a number for each entry of x's last axis.
void check_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

// The same by a GPU's kernels: with gradients if they are recorded; undefined if no kernel takes it: off the GPU, for
// weights of each sample or in other types than float32, and for widths that are no multiples of 8.
torch::Tensor norm_on_gpu(const torch::Tensor& x, const NormParameters& parameters);

}  // namespace tessera::ops
