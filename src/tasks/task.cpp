#include "tasks/task.h"

#include <ATen/autocast_mode.h>

#include <array>

#include "core/error.h"
#include "core/text.h"

namespace tessera::tasks {

Precision parse_precision(const std::string& name) {
  static const std::array<std::string, 4> known = {"fp32", "bf16", "fp64", "int8"};
  for (size_t i = 0; i < known.size(); ++i)
    if (name == known[i]) return static_cast<Precision>(i);
  fail_usage("precision '", name, "', must be ", join(known, ", "), did_you_mean(name, known));
}

namespace {

// A copy in memory that LibTorch allocated: aligned, so that results do not depend on where a vector happened
// to lie.
torch::Tensor tensor_of(const std::vector<float>& values, std::vector<int64_t> shape, torch::Device device,
                        torch::ScalarType type) {
  const torch::Tensor view =
      torch::from_blob(const_cast<float*>(values.data()), shape, torch::TensorOptions(torch::kFloat32));
  if (device.is_cpu()) return view.to(type, /*non_blocking=*/false, /*copy=*/true);
  return view.pin_memory().to(torch::TensorOptions(device).dtype(type), /*non_blocking=*/true);
}

}  // namespace

Batch to_device(const data::Batch& batch, torch::Device device, Precision precision) {
  const torch::ScalarType type = precision == Precision::fp64 ? torch::kFloat64 : torch::kFloat32;
  Batch out;
  out.images = tensor_of(batch.images, {batch.size, batch.channels, batch.height, batch.width}, device, type);
  out.labels = torch::tensor(batch.labels, torch::kInt64).to(device);
  if (!batch.targets.empty()) {
    const auto classes = static_cast<int64_t>(batch.targets.size()) / batch.size;
    out.targets = tensor_of(batch.targets, {batch.size, classes}, device, type);
  }
  return out;
}

Batch Batch::piece(int64_t index, int64_t count) const {
  const auto cut = [&](const torch::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    const int64_t rows = tensor.size(0), begin = rows * index / count;
    return tensor.narrow(0, begin, rows * (index + 1) / count - begin);
  };
  const int64_t skipped = unlabelled.defined() ? unlabelled.size(0) * index / count : 0;
  return {cut(images),    cut(labels), cut(targets), cut(unlabelled), first_unlabelled + skipped,
          labelled_share, mean_weight};
}

AutocastScope::AutocastScope(torch::Device device, Precision precision)
    : device_(device.type()), on_(precision == Precision::bf16 || precision == Precision::int8) {
  if (!on_) return;
  if (precision == Precision::int8) {
    if (!device.is_cpu()) fail_usage("precision 'int8' is for the CPU; on a GPU use bf16");
    ops::InferenceSettings settings = ops::inference_settings();
    settings.int8 = true;
    int8_.emplace(settings);
  }
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, torch::kBFloat16);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!on_) return;
  // The cache holds this step's bf16 copies of the weights.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
}

double Evaluation::metric(const std::string& name) const {
  for (const auto& [key, value] : metrics)
    if (key == name) return value;
  fail("evaluation: no metric '", name, "'");
}

}  // namespace tessera::tasks
