// The device and the precision that a model runs in.
#pragma once

#include "ops/torch.h"

#include <string>
#include <vector>

#include "tasks/base/task.h"

namespace tessera::parallel {
class World;
}

namespace tessera::train {

// Returns the device "cpu", "cuda", "cuda:1" or "auto" (a GPU if there is one). Throws Error if a requested
// GPU does not exist.
torch::Device choose_device(const std::string& name);

// Returns the device of this process among several: either each gets a GPU, or all use the CPU. If there are
// too few GPUs, "auto" uses the CPU and adds the reason to `notes`; "cuda" is an error.
torch::Device choose_device(const std::string& name, parallel::World& world, std::vector<std::string>& notes);

// Sets and returns the number of compute threads of the library and of LibTorch; 0 = all cores.
int use_threads(int64_t threads);

// Sets and returns the number of compute threads next to `decoding` decoder threads. Up to an eighth of
// `threads` are decoders. They sleep most of the time, so if there are few threads, none is given up.
int use_threads_beside(int64_t decoding, int64_t threads);

torch::ScalarType parameter_type(tasks::Precision precision);

// LibTorch's GPU library, loaded on first use of a GPU.

// True if this process can compute on a GPU. If the machine has NVIDIA's driver, the first call loads
// LibTorch's GPU half (half a gigabyte) from the folder of its CPU half. A program linked with both halves
// loads nothing.
bool gpu_is_available();

// Returns the number of GPUs that this process sees; 0 without one.
int num_gpus();

// Returns why there is no GPU, as the end of a message: "this machine has no NVIDIA driver (libcuda.so.1)";
// "" if there is one.
std::string why_no_gpu();

// Returns the same if the machine has NVIDIA's driver, so that a GPU is expected; empty without a driver.
std::string why_gpu_is_idle();

// Returns the form of each operator's kernel on the first GPU, or why there is none, for `tessera doctor`.
std::string gpu_kernels();
// Returns the library that computes matrix products on a GPU.
std::string gpu_products();
// Describes whether passes are graphs, for `tessera doctor`.
std::string gpu_graphs();

}  // namespace tessera::train
