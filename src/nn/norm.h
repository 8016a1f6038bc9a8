// Normalisation over the last axis, over a batch and over groups of channels; the learned scale of a residual
// branch.
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

// Batch norm without parameters, before the class head of linear probing (He et al. 2022, MAE, section A.1).
// y = (x - mean) / sqrt(var + eps) for each channel, x [batch, width]. Training uses the mean and (biased)
// variance of the batch, with gradients. It moves the running ones towards them by a tenth, with the variance
// times n / (n - 1). Otherwise the running ones are used. They are buffers, saved with the weights.
class BatchNormImpl : public torch::nn::Module {
 public:
  explicit BatchNormImpl(int64_t width, double eps = 1e-6);
  torch::Tensor forward(const torch::Tensor& x);

  torch::Tensor running_mean, running_var;

 private:
  double eps_;
};
TORCH_MODULE(BatchNorm);

// Group norm (Wu & He 2018) over maps with channels last:
// (x - mean) / sqrt(variance + eps) * weight + bias for x [batch, rows, columns, channels]. Mean and (biased)
// variance are those of a sample and a group of channels / groups adjacent channels. Parameters weight, bias
// [channels].
class GroupNormImpl : public torch::nn::Module {
 public:
  GroupNormImpl(int64_t channels, int64_t groups, double eps);
  torch::Tensor forward(const torch::Tensor& x) const;
  // silu(norm(x)), silu(z) = z sigmoid(z).
  torch::Tensor forward_silu(const torch::Tensor& x) const;
  torch::Tensor weight, bias;

 private:
  torch::Tensor channels_first(const torch::Tensor& x) const;
  int64_t groups_;
  double eps_;
};
TORCH_MODULE(GroupNorm);

}  // namespace tessera::nn
