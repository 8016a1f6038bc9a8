#include "parallel/channel.h"

#include <ATen/core/ivalue_inl.h>

#include <exception>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"

namespace tessera::parallel {
namespace {

// An exchange with the data that names it if it fails.
struct Names {
  Collective what;
  std::string channel;
  std::vector<int> members;
  Shared shared;

  std::exception_ptr error(const std::string& cause) const {
    const std::string first = cause.substr(0, cause.find('\n'));
    return std::make_exception_ptr(
        Lost(shared.watch->explain(what, channel, members, steady_seconds() - what.began, first)));
  }
};

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return thrown.what();
  } catch (...) {
    return "unknown error";
  }
}

// An exchange of tensors on the CPU. Its future ends when the engine's does, with the failure named.
class HostWork final : public c10d::Work {
 public:
  HostWork(const c10::intrusive_ptr<c10d::Work>& work, Names names)
      : future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
    work->getFuture()->addCallback([future = future_, names = std::move(names)](c10::ivalue::Future& done) {
      if (done.hasError()) {
        future->setError(names.error(message_of(done.exception_ptr())));
        return;
      }
      Collective what = names.what;
      what.seconds = steady_seconds() - what.began;
      names.shared.log->add(what);
      future->markCompleted(done.value());
    });
  }
  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  // The engine's timeout ends it.
  bool wait(std::chrono::milliseconds) override {
    future_->waitAndThrow();
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

int64_t size_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

const at::Tensor& one(const std::vector<at::Tensor>& tensors) {
  check(tensors.size() == 1, "an exchange takes one tensor, not ", tensors.size());
  check(tensors[0].is_contiguous(), "a tensor to exchange must be contiguous");
  return tensors[0];
}

}  // namespace

Channel::Channel(std::string axis, const char* sum, std::vector<int> members,
                 c10::intrusive_ptr<c10d::Backend> engine, Shared shared)
    : Backend(engine->getRank(), engine->getSize()),
      axis_(std::move(axis)),
      sum_(sum),
      members_(std::move(members)),
      engine_(std::move(engine)),
      shared_(std::move(shared)) {}

c10::intrusive_ptr<c10d::Work> Channel::begin(const char* kind, int64_t bytes, bool on_gpu,
                                              const Start& start) {
  const std::string channel = text(axis_, " ", sum_, on_gpu ? " gpu" : "");
  const Names names{
      {axis_, kind, bytes, steady_seconds(), 0, shared_.watch->begin(channel)}, channel, members_, shared_};
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = start();
  } catch (const std::exception& error) {
    std::rethrow_exception(names.error(error.what()));
  }
  if (!on_gpu) return c10::make_intrusive<HostWork>(work, names);
  collect();  // so that `running_` does not grow between two calls of traffic()
  const std::lock_guard lock(mutex_);
  running_.push_back({work, names.what});
  return work;
}

c10::intrusive_ptr<c10d::Work> Channel::allreduce(std::vector<at::Tensor>& tensors,
                                                  const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = one(tensors);
  return begin(sum_, size_of(tensor), tensor.is_cuda(), [&] { return engine_->allreduce(tensors, options); });
}

c10::intrusive_ptr<c10d::Work> Channel::broadcast(std::vector<at::Tensor>& tensors,
                                                  const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = one(tensors);
  return begin(kBroadcast, size_of(tensor), tensor.is_cuda(),
               [&] { return engine_->broadcast(tensors, options); });
}

c10::intrusive_ptr<c10d::Work> Channel::gather_equal(const char* kind, at::Tensor& into, at::Tensor& rows) {
  return begin(kind, size_of(into) - size_of(rows), rows.is_cuda(),
               [&] { return engine_->_allgather_base(into, rows, {}); });
}

c10::intrusive_ptr<c10d::Work> Channel::scatter_sum(at::Tensor& into, at::Tensor& whole) {
  return begin(kScatter, size_of(whole) - size_of(into), whole.is_cuda(),
               [&] { return engine_->_reduce_scatter_base(into, whole, {}); });
}

c10::intrusive_ptr<c10d::Work> Channel::exchange(const char* kind, int64_t bytes, at::Tensor& into,
                                                 at::Tensor& rows, std::vector<int64_t>& received,
                                                 std::vector<int64_t>& sent) {
  return begin(kind, bytes, rows.is_cuda(),
               [&] { return engine_->alltoall_base(into, rows, received, sent, {}); });
}

void Channel::collect() {
  const std::lock_guard lock(mutex_);
  while (!running_.empty() && running_.front().work->isCompleted()) {
    Running& done = running_.front();
    done.what.seconds = 1e-3 * static_cast<double>(done.work->getDuration());  // from milliseconds
    shared_.log->add(done.what);
    running_.pop_front();
  }
}

}  // namespace tessera::parallel
