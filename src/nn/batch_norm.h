// Batch norm without parameters in front of a class head, for linear probing (He et al. 2022, "Masked
// autoencoders are scalable vision learners", Section A.1).
#pragma once

#include "ops/torch.h"

namespace tessera::nn {

// y = (x - mean) / sqrt(var + eps) for each channel, x [batch, width]. In training mean and (biased) variance
// are those of the batch, through which the gradient flows, and the running ones move towards them by a tenth
// (the variance as n / (n - 1) of it); otherwise the running ones. They are buffers, saved with the weights.
class BatchNormImpl : public torch::nn::Module {
 public:
  explicit BatchNormImpl(int64_t width, double eps = 1e-6);
  torch::Tensor forward(const torch::Tensor& x);

  torch::Tensor running_mean, running_var;

 private:
  double eps_;
};
TORCH_MODULE(BatchNorm);

}  // namespace tessera::nn
