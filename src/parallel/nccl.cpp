// Gradients over GPUs: PyTorch's ProcessGroupNCCL under the Reducer; each collective is logged with its GPU
// time. All other communication stays with MPI, on the CPU.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>

#include <list>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "core/progress.h"
#include "parallel/group.h"
#include "parallel/world.h"

namespace tessera::parallel {
namespace {

class LoggedNccl final : public c10d::ProcessGroupNCCL {
 public:
  LoggedNccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<Options> options,
             std::shared_ptr<CollectiveLog> log)
      : ProcessGroupNCCL(std::move(store), rank, size, std::move(options)), log_(std::move(log)) {
    enableCollectivesTiming();
  }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    int64_t bytes = 0;
    for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
    const double began = steady_seconds();
    auto work = ProcessGroupNCCL::allreduce(tensors, options);
    const std::lock_guard lock(mutex_);
    running_.push_back({work, {kGradients, bytes, began, 0}});
    return work;
  }

  void collect() {
    const std::lock_guard lock(mutex_);
    while (!running_.empty() && running_.front().work->isCompleted()) {
      Running& done = running_.front();
      done.what.seconds = 1e-3 * static_cast<double>(done.work->getDuration());  // from milliseconds
      log_->add(done.what);
      running_.pop_front();
    }
  }

 private:
  struct Running {
    c10::intrusive_ptr<c10d::Work> work;
    Collective what;
  };
  std::shared_ptr<CollectiveLog> log_;
  std::mutex mutex_;
  std::list<Running> running_;  // in the order of execution on the GPU
};

}  // namespace

bool has_nccl() { return true; }

std::string name_of_gpu(int index) {
  const auto& id = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index))->uuid.bytes;
  return {id, sizeof(id)};
}

c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            int gpu, std::shared_ptr<CollectiveLog> log) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(gpu));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->group_name = "tessera";
  return c10::make_intrusive<LoggedNccl>(std::move(store), rank, size, std::move(options), std::move(log));
}

void collect_nccl(c10d::Backend& backend) { static_cast<LoggedNccl&>(backend).collect(); }

}  // namespace tessera::parallel
