// Graphs of a GPU's calls, as a table of functions. It is in libtessera_gpu_torch.so; tests have their own.
//
// A function returns null, or why it failed: a text that the thread's next call may overwrite.
#pragma once

#include <cstdint>

namespace tessera::kernels::gpu {

constexpr int32_t kGraphVersion = 1;

struct GraphCalls {
  int32_t version = kGraphVersion;
  int32_t device_type = 1;  // c10::DeviceType of the tensors, 1 = CUDA
  // Calls body(context) once and records the work that it starts on a device. A body returns 0, or another number if it failed.
  // Its allocations are the graph's until that is destroyed.
  const char* (*capture)(int device, int (*body)(void* context), void* context, void** graph) = nullptr;
  // Starts the recorded calls on the device's current stream, with the same memory.
  const char* (*replay)(void* graph) = nullptr;
  void (*destroy)(void* graph) = nullptr;
};

}  // namespace tessera::kernels::gpu

extern "C" const tessera::kernels::gpu::GraphCalls* tessera_gpu_graph_calls(void);
