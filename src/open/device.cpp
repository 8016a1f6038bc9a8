#include "open/device.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "parallel/world.h"

namespace tessera::train {
namespace {

torch::Device cuda_device(const std::string& name) {
  const int present = num_gpus();
  if (present == 0) fail("device '", name, "': ", why_no_gpu(), ", use --device cpu");
  const int64_t index = name == "cuda" ? 0 : parse_int(std::string_view(name).substr(5)).value_or(-1);
  if (index < 0 || index >= present)
    fail_usage("device '", name, "': there are ", present, " CUDA GPUs, cuda:0 to cuda:", present - 1);
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace

torch::Device choose_device(const std::string& name) {
  if (name == "cpu") return torch::kCPU;
  if (name == "auto") return gpu_is_available() ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
  if (name == "cuda" || name.starts_with("cuda:")) return cuda_device(name);
  fail_usage("device '", name, "', must be cpu, cuda, cuda:INDEX or auto");
}

torch::Device choose_device(const std::string& name, parallel::World& world,
                            std::vector<std::string>& notes) {
  if (world.size() == 1 || name == "cpu") return choose_device(name);
  if (name.starts_with("cuda:"))
    fail_usage("device '", name, "' is for one process; several take a GPU each: use --device cuda");
  const int gpu =
      parallel::gpu_of(world.local_rank(), world.local_size(), parallel::has_nccl() ? num_gpus() : 0);
  std::string why = parallel::why_no_gpu_each(world.gather(gpu < 0 ? "" : parallel::name_of_gpu(gpu)));
  if (why.empty()) {
    world.take_gpu(gpu);
    return {torch::kCUDA, static_cast<c10::DeviceIndex>(gpu)};
  }
  if (!parallel::has_nccl()) why = "this build is without NCCL";
  if (name == "cuda") fail_usage("device 'cuda': ", why, "; use --device cpu");
  if (num_gpus() > 0) notes.push_back("training on the CPU: " + why);
  return torch::kCPU;
}

int use_threads(int64_t threads) {
  set_num_threads(static_cast<int>(threads));
  at::set_num_threads(num_threads());
  return num_threads();
}

int use_threads_beside(int64_t decoding, int64_t threads) {
  const int all = use_threads(threads);
  return use_threads(all - static_cast<int>(std::min<int64_t>(decoding, all / 8)));
}

torch::ScalarType parameter_type(tasks::Precision precision) {
  return precision == tasks::Precision::fp64 ? torch::kFloat64 : torch::kFloat32;
}

}  // namespace tessera::train
