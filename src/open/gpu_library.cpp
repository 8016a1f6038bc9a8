#include "open/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/cuda.h>

#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "kernels/gpu/graphs.h"
#include "kernels/gpu/library.h"
#include "kernels/gpu/products.h"

namespace tessera::train {
namespace {

// Returns the folder that the running libtorch_cpu.so was loaded from.
std::filesystem::path library_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&at::get_num_threads), &info) == 0 || info.dli_fname == nullptr)
    return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

struct Loaded {
  bool driver = true;
  std::string why_not;  // the reason that the GPU library is not loaded; "" if it is
};

// The GPU library must be loaded before the first query for a GPU, since LibTorch caches the answer.
Loaded load_gpu_half() {
  if (dlopen("libcuda.so.1", RTLD_LAZY) == nullptr)
    return {false, "this machine has no NVIDIA driver (libcuda.so.1)"};
  const std::filesystem::path library = library_folder() / "libtorch_cuda.so";
  if (!std::filesystem::exists(library))
    return {true, text("LibTorch in ", library.parent_path(), " is without its GPU half (libtorch_cuda.so)")};
  if (dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL) == nullptr)
    return {true, text("LibTorch's GPU half does not load (", dlerror(), ")")};
  return {};
}

const Loaded& loaded() {
  static const Loaded it = load_gpu_half();
  return it;
}

// Loads the program's own kernels, once, after LibTorch's GPU half. Returns why there are none.
const std::string& why_no_kernels() {
  static const std::string why = kernels::gpu::load_library(kernels::gpu::library_path());
  return why;
}

// Loads cuBLASLt, once; LibTorch's GPU half has loaded it if it needs it. Returns why there is none.
const std::string& why_no_products() {
  static const std::string why = kernels::gpu::load_products();
  return why;
}

// Loads the library of graphs, once. Returns why there is none.
const std::string& why_no_graphs() {
  static const std::string why = kernels::gpu::load_graphs(kernels::gpu::graphs_path());
  return why;
}

}  // namespace

bool gpu_is_available() {
  if (!loaded().why_not.empty() || !torch::cuda::is_available()) return false;
  why_no_kernels();  // loads them
  if (kernels::gpu::products_wanted() && !why_no_products().empty())
    fail_usage("TESSERA_GPU=cublaslt: cuBLASLt does not load (", why_no_products(),
               "): add its folder to LD_LIBRARY_PATH, or leave TESSERA_GPU out");
  if (kernels::gpu::graphs_wanted() && !why_no_graphs().empty())
    fail_usage("TESSERA_GPU=graphs: ", why_no_graphs(), ": leave the word graphs out of TESSERA_GPU");
  // fp32 means float32: by default LibTorch rounds inputs of convolutions to the 10 bits of TF32.
  at::globalContext().setAllowTF32CuDNN(false);
  return true;
}

int num_gpus() { return gpu_is_available() ? static_cast<int>(torch::cuda::device_count()) : 0; }

std::string why_gpu_is_idle() { return loaded().driver && !gpu_is_available() ? why_no_gpu() : ""; }

std::string gpu_kernels() {
  if (!gpu_is_available()) return "none (no GPU)";
  if (!why_no_kernels().empty()) return "LibTorch's alone (" + why_no_kernels() + ")";
  const kernels::gpu::Table& table = *kernels::gpu::table();
  const int capability = table.capability(0);
  if (kernels::gpu::usable_capability(table, 0) < 0)
    return text("LibTorch's alone (libtessera_gpu.so has code for compute capabilities ", table.images,
                ", this GPU has ", capability / 10, ".", capability % 10, ")");
  return text(kernels::gpu::describe_forms(table, capability), " for compute capability ", capability / 10,
              ".", capability % 10, " (TESSERA_GPU chooses another form)");
}

std::string gpu_products() {
  if (!gpu_is_available()) return "none (no GPU)";
  if (!why_no_products().empty()) return "LibTorch's (cuBLASLt does not load: " + why_no_products() + ")";
  const std::string library = "cuBLASLt " + kernels::gpu::products_version();
  return kernels::gpu::products_in_use() ? library
                                         : "LibTorch's (TESSERA_GPU=cublaslt takes " + library + ")";
}

std::string gpu_graphs() {
  if (!gpu_is_available()) return "none (no GPU)";
  if (!why_no_graphs().empty()) return "none (" + why_no_graphs() + ")";
  return kernels::gpu::graph_calls() ? "on" : "off (TESSERA_GPU=graphs turns them on)";
}

std::string why_no_gpu() {
  if (!loaded().why_not.empty()) return loaded().why_not;
  return torch::cuda::is_available() ? "" : "the NVIDIA driver shows this process no GPU";
}

}  // namespace tessera::train
