#include "train/gpu_library.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/cuda.h>

#include <filesystem>

#include "core/text.h"

namespace tessera::train {
namespace {

// The folder that the running libtorch_cpu.so was loaded from.
std::filesystem::path library_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&at::get_num_threads), &info) == 0 || info.dli_fname == nullptr)
    return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

// What keeps the GPU half from being loaded; empty where it is there. It has to be there before LibTorch is asked for a GPU the
// first time, since LibTorch remembers the answer.
std::string load_gpu_half() {
  if (dlopen("libcuda.so.1", RTLD_LAZY) == nullptr) return "this machine has no NVIDIA driver (libcuda.so.1)";
  const std::filesystem::path library = library_folder() / "libtorch_cuda.so";
  if (!std::filesystem::exists(library))
    return text("LibTorch in ", library.parent_path(), " is without its GPU half (libtorch_cuda.so)");
  if (dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL) == nullptr)
    return text("LibTorch's GPU half does not load (", dlerror(), ")");
  return "";
}

const std::string& loading() {
  static const std::string why = load_gpu_half();
  return why;
}

}  // namespace

bool gpu_is_available() {
  if (!loading().empty() || !torch::cuda::is_available()) return false;
  // fp32 says float32: LibTorch would round what convolutions read to the 10 bits of TF32.
  at::globalContext().setAllowTF32CuDNN(false);
  return true;
}

int num_gpus() { return gpu_is_available() ? static_cast<int>(torch::cuda::device_count()) : 0; }

std::string why_no_gpu() {
  if (!loading().empty()) return loading();
  return torch::cuda::is_available() ? "" : "the NVIDIA driver shows this process no GPU";
}

}  // namespace tessera::train
