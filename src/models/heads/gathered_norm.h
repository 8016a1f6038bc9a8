// Batch norm over the samples of all processes (SyncBN), for heads, which see few samples a process.
#pragma once

#include <functional>

#include "nn/convolution.h"

namespace tessera::models {

// Rows [samples, columns] of all processes from those of this one, in the order of the batch; rows of samples that no
// process computes now are zero. Gradients flow back. Empty: this process is alone.
using GatherRows = std::function<torch::Tensor(const torch::Tensor& rows)>;

// The norm of a map [batch, rows, columns, channels]; in training, with `gather`, its mean and variance are over the
// samples of all processes: the same for any number of processes.
torch::Tensor normalise(const nn::BatchNorm2d& norm, const torch::Tensor& map, const GatherRows& gather);

}  // namespace tessera::models
