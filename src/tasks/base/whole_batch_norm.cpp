#include "tasks/base/whole_batch_norm.h"

#include "nn/init.h"

namespace tessera::tasks {

WholeBatchNorm::WholeBatchNorm(int64_t width, const Options& options) {
  if (options.affine) {
    weight_ = register_parameter("weight", nn::ones({width}));
    bias_ = register_parameter("bias", nn::zeros({width}));
  }
  if (!options.running) return;
  running_mean_ = register_buffer("running_mean", nn::zeros({width}));
  running_var_ = register_buffer("running_var", nn::ones({width}));
}

torch::Tensor WholeBatchNorm::forward(const torch::Tensor& rows, int64_t count, Collective& others) {
  constexpr double kEps = 1e-5, kMomentum = 0.1;
  // Half precision is too coarse for sums over a batch.
  const torch::Tensor x = rows.scalar_type() == torch::kFloat64 ? rows : rows.to(torch::kFloat32);
  torch::Tensor centred, variance;
  const bool keeps = running_mean_.defined();
  if (is_training() || !keeps) {
    const auto n = static_cast<double>(count);
    const torch::Tensor mean = others.sum(x.sum(0)) / n;
    centred = x - mean;
    variance = others.sum(centred.square().sum(0)) / n;
    if (keeps && count > 1) {
      const torch::NoGradGuard no_grad;
      running_mean_.lerp_(mean.detach(), kMomentum);
      running_var_.lerp_(variance.detach() * (n / (n - 1)), kMomentum);
    }
  } else {
    centred = x - running_mean_, variance = running_var_;
  }
  const torch::Tensor y = centred * (variance + kEps).rsqrt();
  return weight_.defined() ? y * weight_ + bias_ : y;
}

}  // namespace tessera::tasks
