#include "nn/group_norm.h"

#include "nn/init.h"

namespace tessera::nn {

GroupNormImpl::GroupNormImpl(int64_t channels, int64_t groups, double eps) : groups_(groups), eps_(eps) {
  weight = register_parameter("weight", ones({channels}));
  bias = register_parameter("bias", zeros({channels}));
}

// ATen's axis order has channels first; in memory they stay last.
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
