// The GPU half of LibTorch, loaded when a GPU is asked for.
#pragma once

#include <string>

namespace tessera::train {

// Whether there is a GPU that this process can compute on. The first call loads LibTorch's GPU half (half a gigabyte) from
// the folder of its CPU half where the machine has NVIDIA's driver; a program that is linked with both loads nothing.
bool gpu_is_available();

// How many GPUs this process sees; 0 without one.
int num_gpus();

// Why there is no GPU, in words that end a message: "this machine has no NVIDIA driver (libcuda.so.1)"; empty where there is one.
std::string why_no_gpu();

// The same where the machine has NVIDIA's driver all the same, so that a GPU may be expected; empty without a driver.
std::string why_gpu_is_idle();

}  // namespace tessera::train
