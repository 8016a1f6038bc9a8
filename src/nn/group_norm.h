// Group norm (Wu & He 2018) over maps with channels last.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::nn {

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
