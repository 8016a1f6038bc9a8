#include "nn/batch_norm.h"

#include "nn/init.h"

namespace tessera::nn {
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

}  // namespace tessera::nn
