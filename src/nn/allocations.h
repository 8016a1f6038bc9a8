// Memory allocated by LibTorch's CPU allocator on this thread.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace tessera::nn {

// Counts from construction to destruction; instances on one thread must be nested.
class Allocations {
 public:
  int64_t alive() const { return recorder_->alive; }  // bytes, minus freed bytes that were allocated before
  int64_t peak() const { return recorder_->peak; }

 private:
  struct Recorder final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      alive += bytes;
      peak = std::max(peak, alive);
    }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t alive = 0, peak = 0;
  };
  std::shared_ptr<Recorder> recorder_ = std::make_shared<Recorder>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, recorder_};
};

}  // namespace tessera::nn
