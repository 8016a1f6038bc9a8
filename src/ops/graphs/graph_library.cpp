// libtessera_gpu_torch.so: graphs by LibTorch's GPU half. The program loads it after that half, if TESSERA_GPU=graphs.
#include <ATen/cuda/CUDAGraph.h>
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

// The stream and the memory of all recordings on a device. Graphs of one pool may use each other's memory between their
// replays, since a model replays them one after another on one stream.
struct Recorder {
  c10::cuda::CUDAStream stream;
  at::cuda::MempoolId_t pool = at::cuda::graph_pool_handle();
};

Recorder& recorder_of(int device) {
  static thread_local std::map<int, Recorder> all;
  const auto index = static_cast<c10::DeviceIndex>(device);
  return all.try_emplace(device, Recorder{c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index)})
      .first->second;
}

const char* capture(int device, int (*body)(void*), void* context, void** graph) {
  return failure_of([&] {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    Recorder& recorder = recorder_of(device);
    c10::cuda::getCurrentCUDAStream().synchronize();
    auto made = std::make_unique<at::cuda::CUDAGraph>();
    {
      const c10::cuda::CUDAStreamGuard on(recorder.stream);
      // Other threads may go on allocating.
      made->capture_begin(recorder.pool, cudaStreamCaptureModeThreadLocal);
      const bool failed = body(context) != 0;
      const char* const error = failure_of([&] { made->capture_end(); });
      if (failed || error) throw std::runtime_error(error ? error : "the pass failed");
    }
    *graph = made.release();
  });
}

const char* replay(void* graph) {
  return failure_of([&] { static_cast<at::cuda::CUDAGraph*>(graph)->replay(); });
}

void destroy(void* graph) {
  failure_of([&] { delete static_cast<at::cuda::CUDAGraph*>(graph); });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const GraphCalls* tessera_gpu_graph_calls(void) {
  static const GraphCalls calls{.capture = capture, .replay = replay, .destroy = destroy};
  return &calls;
}
