// libtessera_gpu_torch.so: graphs by LibTorch's GPU half. The program loads it after that half, if TESSERA_GPU=graphs.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "kernels/gpu/graphs.h"

namespace {

using tessera::kernels::gpu::GraphCalls;

// Returns null, or the text of the exception of `work`.
template <class Work>
const char* failure_of(const Work& work) {
  static thread_local std::string text;
  try {
    work();
    return nullptr;
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
    text = "an unknown error";
  }
  return text.c_str();
}

using Pool = std::shared_ptr<const at::cuda::MempoolId_t>;

// The stream and the memory of all recordings on a device. Graphs of one pool may use each other's memory between their
// replays, since a model replays them one after another on one stream. LibTorch drops a pool with its last graph.
struct Recorder {
  c10::cuda::CUDAStream stream;
  std::weak_ptr<const at::cuda::MempoolId_t> pool = {};

  Pool open_pool() {
    Pool it = pool.lock();
    if (!it) pool = it = std::make_shared<const at::cuda::MempoolId_t>(at::cuda::graph_pool_handle());
    return it;
  }
};

struct Graph {
  Pool pool;
  at::cuda::CUDAGraph calls;
};

Recorder& recorder_of(c10::DeviceIndex device) {
  static thread_local std::map<int, Recorder> all;
  return all.try_emplace(device, Recorder{c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)})
      .first->second;
}

// A recording that the device ended, as a wait for it does, leaves its pool open, and later recordings would fail.
void close_pool(c10::DeviceIndex device, const at::cuda::MempoolId_t& pool) {
  failure_of([&] {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool);
    c10::cuda::CUDACachingAllocator::releasePool(device, pool);
    at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool);
    at::getHostAllocator(at::kCUDA)->release_pool(pool);
  });
}

const char* capture(int device, int (*body)(void*), void* context, void** graph) {
  return failure_of([&] {
    const auto index = static_cast<c10::DeviceIndex>(device);
    const c10::cuda::CUDAGuard guard(index);
    Recorder& recorder = recorder_of(index);
    c10::cuda::getCurrentCUDAStream().synchronize();
    auto made = std::make_unique<Graph>();
    made->pool = recorder.open_pool();
    {
      const c10::cuda::CUDAStreamGuard on(recorder.stream);
      // Other threads may go on allocating.
      made->calls.capture_begin(*made->pool, cudaStreamCaptureModeThreadLocal);
      const bool failed = body(context) != 0;
      if (const char* const error = failure_of([&] { made->calls.capture_end(); })) {
        const std::string why = error;
        close_pool(index, *made->pool);
        throw std::runtime_error(why);
      }
      if (failed) throw std::runtime_error("the pass failed");
    }
    *graph = made.release();
  });
}

const char* replay(void* graph) {
  return failure_of([&] { static_cast<Graph*>(graph)->calls.replay(); });
}

void destroy(void* graph) {
  failure_of([&] { delete static_cast<Graph*>(graph); });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const GraphCalls* tessera_gpu_graph_calls(void) {
  static const GraphCalls calls{.capture = capture, .replay = replay, .destroy = destroy};
  return &calls;
}
