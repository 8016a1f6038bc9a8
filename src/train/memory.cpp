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

// `pass` is given the pictures.
template <class Pass>
int64_t peak_of(int64_t pictures, int64_t side, tasks::Precision precision, const Pass& pass) {
  const torch::Tensor images =
      torch::zeros({pictures, 3, side, side}, torch::TensorOptions(parameter_type(precision)));
  const auto recorder = std::make_shared<Recorder>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, recorder);
  pass(images);
  return recorder->peak();
}

template <class Pass>
ActivationBytes measure(int64_t side, tasks::Precision precision, const Pass& pass) {
  peak_of(1, side, precision, pass);  // makes room for what stays: gradients, packed weights
  const int64_t one = peak_of(1, side, precision, pass), two = peak_of(2, side, precision, pass);
  const int64_t per_picture = std::max<int64_t>(0, two - one);
  return {std::max<int64_t>(0, one - per_picture), per_picture};
}

torch::Tensor scores_of(models::Backbone& model, const torch::Tensor& images, tasks::Precision precision) {
  const tasks::AutocastScope autocast(torch::kCPU, precision);
  return model.forward(images);
}

}  // namespace

ActivationBytes measure_training(models::Backbone& model, int64_t side, tasks::Precision precision) {
  model.train();
  return measure(side, precision,
                 [&](const torch::Tensor& images) { scores_of(model, images, precision).sum().backward(); });
}

ActivationBytes measure_evaluation(models::Backbone& model, int64_t side, tasks::Precision precision) {
  model.eval();
  const torch::NoGradGuard no_grad;
  return measure(side, precision, [&](const torch::Tensor& images) { scores_of(model, images, precision); });
}

}  // namespace tessera::train
