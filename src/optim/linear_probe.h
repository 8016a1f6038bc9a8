// The linear probe of MAE (He et al. 2022, appendix A), VisionLLaMA (Table 14) and DARL (Table 13) on
// precomputed features: softmax regression by LARS after a batch norm without parameters, which uses the
// statistics of all training features.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>

namespace tessera::train {

struct LinearProbe {
  int64_t epochs = 90, warmup_epochs = 10;
  int64_t batch = 16384;  // at most the training set
  double rate = 0.1;      // learning rate for batches of 256, as in MAE; scales with the batch
  double momentum = 0.9, label_smoothing = 0;
  uint64_t seed = 0;
  // Called after every epoch; false stops with ErrorKind::interrupted.
  std::function<bool()> progress = {};
};

// Returns the classes of `test` [samples, width], int64, after training on `train` with int64 `labels`.
// Computes in float32 on the device of `train`; the result, on the CPU, does not depend on the number of threads.
torch::Tensor linear_probe_classes(const LinearProbe& probe, const torch::Tensor& train,
                                   const torch::Tensor& labels, int64_t classes, const torch::Tensor& test);

}  // namespace tessera::train
