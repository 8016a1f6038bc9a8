// Private to this folder: one process group of c10d with numbers, byte counts, times and named failures.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/exchange_log.h"
#include "parallel/watch.h"

namespace tessera::parallel {

// Shared by all channels of a process.
struct Shared {
  std::shared_ptr<ExchangeLog> log;
  std::shared_ptr<Watch> watch;
};

class Channel final : public c10d::Backend {
 public:
  // `members`: the ranks in the world. `sum`: the kind under which all-reduces are logged.
  Channel(std::string axis, const char* sum, std::vector<int> members,
          c10::intrusive_ptr<c10d::Backend> engine, Shared shared);
  const std::string getBackendName() const override { return engine_->getBackendName(); }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;

  // As in c10d, logged as `kind` with `bytes`.
  c10::intrusive_ptr<c10d::Work> gather_equal(const char* kind, at::Tensor& into, at::Tensor& rows);
  c10::intrusive_ptr<c10d::Work> scatter_sum(at::Tensor& into, at::Tensor& whole);
  c10::intrusive_ptr<c10d::Work> exchange(const char* kind, int64_t bytes, at::Tensor& into, at::Tensor& rows,
                                          std::vector<int64_t>& received, std::vector<int64_t>& sent);

  // Logs the exchanges that a GPU has completed.
  void collect();
  void shutdown() override { engine_->shutdown(); }

 private:
  using Start = std::function<c10::intrusive_ptr<c10d::Work>()>;
  c10::intrusive_ptr<c10d::Work> begin(const char* kind, int64_t bytes, bool on_gpu, const Start& start);

  const std::string axis_;
  const char* sum_;
  const std::vector<int> members_;
  const c10::intrusive_ptr<c10d::Backend> engine_;
  const Shared shared_;
  struct Running {
    c10::intrusive_ptr<c10d::Work> work;
    Collective what;
  };
  std::mutex mutex_;
  std::list<Running> running_;  // on a GPU, in the order of execution
};

}  // namespace tessera::parallel
