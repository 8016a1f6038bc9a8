// The GPU half of LibTorch, loaded on first use of a GPU.
#pragma once

#include <string>

namespace tessera::train {

// True if this process can compute on a GPU. If the machine has NVIDIA's driver, the first call loads
// LibTorch's GPU half (half a gigabyte) from the folder of its CPU half. A program linked with both halves
// loads nothing.
bool gpu_is_available();

// Returns the number of GPUs that this process sees; 0 without one.
int num_gpus();

// Returns why there is no GPU, as the end of a message: "this machine has no NVIDIA driver (libcuda.so.1)".
// Empty if there is one.
std::string why_no_gpu();

// Returns the same if the machine has NVIDIA's driver, so that a GPU is expected; empty without a driver.
std::string why_gpu_is_idle();

}  // namespace tessera::train
