// Normalisation over the last axis, and the learned scale of a residual branch.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "ops/norm.h"

namespace tessera::nn {

// x and the norm to apply before its next use. A linear layer computes both in one pass if it can
// (ops/linear.h); other readers convert to a tensor, which computes the norm.
struct DeferredNorm {
  DeferredNorm(torch::Tensor already) : x(std::move(already)) {}
  DeferredNorm(torch::Tensor of, ops::NormParameters by) : x(std::move(of)), norm(std::move(by)) {}
  operator torch::Tensor() const { return norm.defined() ? ops::norm(x, norm) : x; }

  torch::Tensor x;
  ops::NormParameters norm = {};
};

struct LayerNormOptions {
  double eps = 1e-6;
  bool bias = true;
  bool residual = false;  // scale by 1 + weight with an initial weight of 0 (as in xLSTM), instead of by
                          // weight
};

// (x - mean) / sqrt(variance + eps) * scale + bias (Ba et al. 2016).
class LayerNormImpl : public torch::nn::Module {
 public:
  explicit LayerNormImpl(int64_t width, LayerNormOptions options = {});
  torch::Tensor forward(const torch::Tensor& x) const { return ops::norm(x, parameters_now()); }
  // The same for the linear layer after this norm.
  DeferredNorm before_linear(const torch::Tensor& x) const { return {x, parameters_now()}; }
  // Returns the factor of x: weight, or 1 + weight.
  torch::Tensor scale() const { return options_.residual ? weight + 1 : weight; }
  double eps() const { return options_.eps; }
  torch::Tensor weight, bias;

 private:
  ops::NormParameters parameters_now() const { return {scale(), bias, options_.eps}; }
  LayerNormOptions options_;
};
TORCH_MODULE(LayerNorm);

// x / sqrt(mean(x^2) + eps) * weight (Zhang & Sennrich 2019).
class RmsNormImpl : public torch::nn::Module {
 public:
  explicit RmsNormImpl(int64_t width, double eps = 1e-6);
  torch::Tensor forward(const torch::Tensor& x) const { return ops::norm(x, parameters_now()); }
  DeferredNorm before_linear(const torch::Tensor& x) const { return {x, parameters_now()}; }
  torch::Tensor weight;

 private:
  ops::NormParameters parameters_now() const { return {weight, {}, eps_, /*centred=*/false}; }
  double eps_;
};
TORCH_MODULE(RmsNorm);

// x * gamma, a number per channel (CaiT, Touvron et al. 2021).
class LayerScaleImpl : public torch::nn::Module {
 public:
  LayerScaleImpl(int64_t width, double first_value);
  torch::Tensor gamma;  // [width]: the factor of the branch, applied with its addition
};
TORCH_MODULE(LayerScale);

}  // namespace tessera::nn
