// Batch norm (Ioffe & Szegedy 2015) with the statistics of a step's whole batch, over all processes.
//
//   training: y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, mean and (biased) variance of all rows
//   else the running ones, which moved towards them by a tenth a pass, with the variance times n / (n - 1)
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "tasks/base/task.h"

namespace tessera::tasks {

// Parameters weight and bias if it is affine; buffers running_mean and running_var if it has running statistics; of [width].
// Without them, statistics are always those of the batch: heads of training are unused afterwards.
class WholeBatchNorm final : public torch::nn::Module {
 public:
  struct Options {
    bool affine = true, running = true;
  };
  explicit WholeBatchNorm(int64_t width) : WholeBatchNorm(width, Options()) {}
  WholeBatchNorm(int64_t width, const Options& options);
  // Normalises rows [n, width] of this process, `count` over all processes.
  torch::Tensor forward(const torch::Tensor& rows, int64_t count, Collective& others);

 private:
  torch::Tensor weight_, bias_, running_mean_, running_var_;
};

}  // namespace tessera::tasks
