#include "models/heads/gathered_norm.h"

#include "nn/checkpoint.h"

namespace tessera::models {
namespace {

// Batch norm with the mean and variance over the samples of all processes. The means and variances of the
// samples are combined in the order of the batch: the same bits for any number of processes.
torch::Tensor over_processes(nn::BatchNorm2dImpl& norm, const torch::Tensor& x, const GatherRows& gather) {
  const auto& [eps, momentum] = norm.options();
  const torch::Tensor wide = x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
  const torch::Tensor each_mean = wide.mean({1, 2}),
                      each_variance = (wide - each_mean.unsqueeze(1).unsqueeze(1)).square().mean({1, 2});
  const int64_t channels = x.size(3);
  const torch::Tensor rows =
      gather(torch::cat({each_mean, each_variance, torch::ones({x.size(0), 1}, wide.options())}, 1));
  const torch::Tensor there = rows.narrow(1, 2 * channels, 1), count = there.sum().detach();
  const torch::Tensor mean = rows.narrow(1, 0, channels).sum(0) / count;
  const torch::Tensor apart = (rows.narrow(1, 0, channels) - mean).square() * there;
  const torch::Tensor variance = (rows.narrow(1, channels, channels).sum(0) + apart.sum(0)) / count;
  if (!nn::recomputing()) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor n = count * (x.size(1) * x.size(2));
    norm.running_mean.lerp_(mean.detach().to(norm.running_mean.scalar_type()), momentum);
    norm.running_var.lerp_((variance.detach() * n / (n - 1).clamp_min(1)).to(norm.running_var.scalar_type()),
                           momentum);
  }
  return ((wide - mean) * ((variance + eps).rsqrt() * norm.weight) + norm.bias).to(x.scalar_type());
}

}  // namespace

torch::Tensor normalise(const nn::BatchNorm2d& norm, const torch::Tensor& map, const GatherRows& gather) {
  return norm->is_training() && gather ? over_processes(*norm.ptr(), map, gather) : norm.ptr()->forward(map);
}

}  // namespace tessera::models
