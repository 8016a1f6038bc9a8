// Shared by tests of graphs: a table in place of a GPU's, for tensors of the CPU. It records a pass, and a replay runs it again with
// the same memory. Like a GPU, it records no step that reads values.
#pragma once

#include <ATen/record_function.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>

#include "core/recording.h"
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
  // Notes an operator by which a step of this thread reads values, while it lives. A variance of all values does so on CPUs only.
  class Reads {
   public:
    Reads() {
      found().clear();
      handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(began, ended));
    }
    ~Reads() { at::removeCallback(handle_); }
    Reads(const Reads&) = delete;
    Reads& operator=(const Reads&) = delete;
    static std::string& found() {
      static thread_local std::string it;
      return it;
    }

   private:
    static int& variances() {
      static thread_local int it = 0;
      return it;
    }
    static std::unique_ptr<at::ObserverContext> began(const at::RecordFunction& f) {
      static const std::set<std::string> reading = {"aten::_local_scalar_dense", "aten::nonzero",
                                                    "aten::equal", "aten::masked_select", "aten::_unique2"};
      variances() += std::string("aten::var") == f.name();
      if (Recording::is_on() && variances() == 0 && reading.contains(f.name()))
        found() = std::string("it reads values back (") + f.name() + ")";
      return nullptr;
    }
    static void ended(const at::RecordFunction& f, at::ObserverContext*) {
      variances() -= std::string("aten::var") == f.name();
    }
    at::CallbackHandle handle_ = 0;
  };
  static const char* capture(int, int (*body)(void*), void* context, void** graph) {
    ++counts().captures;
    if (counts().capture_error) return counts().capture_error;
    const Reads reads;
    if (body(context) != 0) return "the pass failed";
    if (!Reads::found().empty()) return Reads::found().c_str();
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
