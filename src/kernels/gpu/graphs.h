// The library of graphs: its loading. Graphs are off without TESSERA_GPU=graphs.
#pragma once

#include <string>

#include "kernels/gpu/graph_calls.h"

namespace tessera::kernels::gpu {

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
