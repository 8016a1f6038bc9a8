// Shared by tests of graphs: a table in place of a GPU's, for tensors of the CPU. It records a pass, and a replay runs it again with
// the same memory.
#pragma once

#include <cstdlib>

#include "kernels/gpu/graphs.h"
#include "ops/torch.h"

namespace tessera::models {

// While it lives, graphs are on.
class RecordedGraphs {
 public:
  struct Counts {
    int captures = 0, replays = 0, alive = 0;
    const char *capture_error = nullptr, *replay_error = nullptr;
  };
  RecordedGraphs() {
    counts() = {};
    setenv("TESSERA_GPU", "graphs", 1);
    static const kernels::gpu::GraphCalls calls{.device_type = static_cast<int32_t>(torch::kCPU),
                                                .capture = capture,
                                                .replay = replay,
                                                .destroy = destroy};
    kernels::gpu::use_graphs(&calls);
  }
  ~RecordedGraphs() {
    kernels::gpu::use_graphs(nullptr);
    unsetenv("TESSERA_GPU");
  }
  RecordedGraphs(const RecordedGraphs&) = delete;
  RecordedGraphs& operator=(const RecordedGraphs&) = delete;
  static Counts& counts() {
    static Counts all;
    return all;
  }

 private:
  struct Recorded {
    int (*body)(void*);
    void* context;
  };
  static const char* capture(int, int (*body)(void*), void* context, void** graph) {
    ++counts().captures;
    if (counts().capture_error) return counts().capture_error;
    if (body(context) != 0) return "the pass failed";
    ++counts().alive;
    *graph = new Recorded{body, context};
    return nullptr;
  }
  static const char* replay(void* graph) {
    ++counts().replays;
    const auto* const recorded = static_cast<Recorded*>(graph);
    if (!counts().replay_error) recorded->body(recorded->context);
    return counts().replay_error;
  }
  static void destroy(void* graph) {
    --counts().alive;
    delete static_cast<Recorded*>(graph);
  }
};

}  // namespace tessera::models
