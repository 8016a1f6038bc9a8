#include "train/memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>

#include "train/device.h"

namespace tessera::train {
namespace {

// Counts what LibTorch's allocator hands out and takes back.
class Recorder final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    alive_ += bytes;
    peak_ = std::max(peak_, alive_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }

 private:
  int64_t alive_ = 0, peak_ = 0;
};

int64_t peak_of(models::Backbone& model, int64_t pictures, int64_t side, tasks::Precision precision) {
  const torch::Tensor images =
      torch::zeros({pictures, 3, side, side}, torch::TensorOptions(parameter_type(precision)));
  const auto recorder = std::make_shared<Recorder>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, recorder);
  torch::Tensor loss;
  {
    const tasks::AutocastScope autocast(torch::kCPU, precision);
    loss = model.forward(images).sum();
  }
  loss.backward();
  return recorder->peak();
}

}  // namespace

ActivationBytes measure_activations(models::Backbone& model, int64_t side, tasks::Precision precision) {
  model.train();
  peak_of(model, 1, side, precision);  // makes room for the gradients
  const int64_t one = peak_of(model, 1, side, precision), two = peak_of(model, 2, side, precision);
  const int64_t per_picture = std::max<int64_t>(0, two - one);
  return {std::max<int64_t>(0, one - per_picture), per_picture};
}

}  // namespace tessera::train
