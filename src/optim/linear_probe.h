// The linear probe of MAE (He et al. 2022, appendix A), VisionLLaMA (Table 14) and DARL (Table 13) on features
// that were computed once: softmax regression by LARS behind a batch norm without parameters, whose statistics
// are those of all training features.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>

namespace tessera::train {

struct LinearProbe {
  int64_t epochs = 90, warmup_epochs = 10;
  int64_t batch = 16384;  // at most the training set
  double rate = 0.1;      // of batches of 256, as MAE's; it grows with the batch
  double momentum = 0.9, label_smoothing = 0;
  uint64_t seed = 0;
  // Called after every epoch; returning false ends with ErrorKind::interrupted.
  std::function<bool()> progress = {};
};

// The classes of `test` [samples, width], int64, after training on `train` with int64 `labels`. In float32, on
// the CPU; the same for any number of threads' pieces.
torch::Tensor linear_probe_classes(const LinearProbe& probe, const torch::Tensor& train,
                                   const torch::Tensor& labels, int64_t classes, const torch::Tensor& test);

}  // namespace tessera::train
