// Exchanges of tensors on GPUs: PyTorch's ProcessGroupNCCL. Untested on several GPUs.
#ifdef USE_C10D_NCCL
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <utility>

#include "core/error.h"
#include "parallel/meeting_place.h"
#include "parallel/world.h"

namespace tessera::parallel {

#ifdef USE_C10D_NCCL
bool has_nccl() { return true; }

std::string name_of_gpu(int index) {
  const auto& id = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index))->uuid.bytes;
  return {id, sizeof(id)};
}

c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            int gpu) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(gpu));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->group_name = "tessera";
  options->timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * patience()));
  auto engine = c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), rank, size, std::move(options));
  engine->enableCollectivesTiming();
  return engine;
}

#else
bool has_nccl() { return false; }
std::string name_of_gpu(int) { return ""; }
c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store>, int, int, int) {
  fail("this build is without NCCL: several processes train on the CPU, with --device cpu");
}
#endif

}  // namespace tessera::parallel
