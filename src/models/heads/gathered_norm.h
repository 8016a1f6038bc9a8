// Batch norm over the samples of all processes (SyncBN), for heads, which see few samples per process.
#pragma once

#include <functional>

#include "nn/convolution.h"

namespace tessera::models {

// Gathers the rows [samples, columns] of all processes in the order of the batch. Rows of samples that no
// process computes now are zero. Gradients flow back. Empty: this is the only process.
using GatherRows = std::function<torch::Tensor(const torch::Tensor& rows)>;

// Normalises a map [batch, rows, columns, channels]. In training with `gather`, mean and variance are over
// the samples of all processes: the same for any number of processes.
torch::Tensor normalise(const nn::BatchNorm2d& norm, const torch::Tensor& map, const GatherRows& gather);

}  // namespace tessera::models
