#include "train/device.h"

#include <ATen/Parallel.h>
#include <torch/cuda.h>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"

namespace tessera::train {
namespace {

torch::Device cuda_device(const std::string& name) {
  const auto present = static_cast<int64_t>(torch::cuda::is_available() ? torch::cuda::device_count() : 0);
  if (present == 0) fail("device '", name, "': this build or this machine has no CUDA GPU, use --device cpu");
  const int64_t index = name == "cuda" ? 0 : parse_int(std::string_view(name).substr(5)).value_or(-1);
  if (index < 0 || index >= present)
    fail_usage("device '", name, "': there are ", present, " CUDA GPUs, cuda:0 to cuda:", present - 1);
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace

torch::Device choose_device(const std::string& name) {
  if (name == "cpu") return torch::kCPU;
  if (name == "auto")
    return torch::cuda::is_available() ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
  if (name == "cuda" || name.starts_with("cuda:")) return cuda_device(name);
  fail_usage("device '", name, "', must be cpu, cuda, cuda:INDEX or auto");
}

int use_threads(int64_t threads) {
  set_num_threads(static_cast<int>(threads));
  at::set_num_threads(num_threads());
  return num_threads();
}

torch::ScalarType parameter_type(tasks::Precision precision) {
  return precision == tasks::Precision::fp64 ? torch::kFloat64 : torch::kFloat32;
}

}  // namespace tessera::train
