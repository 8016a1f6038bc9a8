// Graphs of a GPU's calls, as a table of functions, and the loading of its library, libtessera_gpu_torch.so; tests have a table of
// their own. Graphs are off without TESSERA_GPU=graphs.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::kernels::gpu {

constexpr int32_t kGraphVersion = 1;

// A function returns null, or why it failed: a text that the thread's next call may overwrite.
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

// Loads libtessera_gpu_torch.so from a file and uses its table. LibTorch's GPU half must be loaded. Returns an empty text, or why
// there is none.
std::string load_graphs(const std::string& path);
// Returns the path next to the running program.
std::string graphs_path();

// True if TESSERA_GPU has the word "graphs".
bool graphs_wanted();
// The table in use; null without one, and without the word "graphs" in TESSERA_GPU.
const GraphCalls* graph_calls();
// Replaces it, and reads TESSERA_GPU. At the start of a process, before other threads; tests use a table of their own.
void use_graphs(const GraphCalls* calls);

}  // namespace tessera::kernels::gpu

extern "C" const tessera::kernels::gpu::GraphCalls* tessera_gpu_graph_calls(void);
