// Batch norm without parameters before a class head, for linear probing (He et al. 2022, "Masked autoencoders
// are scalable vision learners", Section A.1).
#pragma once

#include "ops/torch.h"

namespace tessera::nn {

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

}  // namespace tessera::nn
