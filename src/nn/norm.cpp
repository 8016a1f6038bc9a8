#include "nn/norm.h"

#include "nn/init.h"

namespace tessera::nn {

LayerNormImpl::LayerNormImpl(int64_t width, LayerNormOptions options) : options_(options) {
  weight = register_parameter("weight", options.residual ? zeros({width}) : ones({width}));
  if (options.bias) bias = register_parameter("bias", zeros({width}));
}

RmsNormImpl::RmsNormImpl(int64_t width, double eps) : eps_(eps) {
  weight = register_parameter("weight", ones({width}));
}

LayerScaleImpl::LayerScaleImpl(int64_t width, double first_value) {
  gamma = register_parameter("gamma", ones({width}).mul_(first_value));
}

namespace {

constexpr double kMomentum = 0.1;

}  // namespace

BatchNormImpl::BatchNormImpl(int64_t width, double eps) : eps_(eps) {
  running_mean = register_buffer("running_mean", zeros({width}));
  running_var = register_buffer("running_var", ones({width}));
}

torch::Tensor BatchNormImpl::forward(const torch::Tensor& input) {
  const torch::Tensor x = input.to(running_mean.scalar_type());
  if (!is_training()) return (x - running_mean) * (running_var + eps_).rsqrt();
  const torch::Tensor mean = x.mean(0), variance = x.var(0, /*unbiased=*/false);
  if (const int64_t n = x.size(0); n > 1) {
    const torch::NoGradGuard no_grad;
    running_mean.lerp_(mean, kMomentum);
    running_var.lerp_(variance * (static_cast<double>(n) / static_cast<double>(n - 1)), kMomentum);
  }
  return (x - mean) * (variance + eps_).rsqrt();
}

GroupNormImpl::GroupNormImpl(int64_t channels, int64_t groups, double eps) : groups_(groups), eps_(eps) {
  weight = register_parameter("weight", ones({channels}));
  bias = register_parameter("bias", zeros({channels}));
}

// ATen's axis order has channels first, but in memory they stay last.
torch::Tensor GroupNormImpl::channels_first(const torch::Tensor& x) const {
  return torch::group_norm(x.permute({0, 3, 1, 2}), groups_, weight, bias, eps_);
}

torch::Tensor GroupNormImpl::forward(const torch::Tensor& x) const {
  return channels_first(x).permute({0, 2, 3, 1});
}

torch::Tensor GroupNormImpl::forward_silu(const torch::Tensor& x) const {
  torch::Tensor normed = channels_first(x);
  return (normed.requires_grad() ? torch::silu(normed) : torch::silu_(normed)).permute({0, 2, 3, 1});
}

}  // namespace tessera::nn
