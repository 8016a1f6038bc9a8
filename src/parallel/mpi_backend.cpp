// c10d's collectives over MPI, as a backend for PyTorch's Reducer.
//
// A separate thread starts each collective without blocking (MPI_Iallreduce …) and polls for its end with
// sleeps. So gradients are exchanged during the rest of the backward pass, and a waiting process takes no
// core from a computing one. Between start and end only that thread calls MPI.
#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include <ATen/core/ivalue_inl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "parallel/group.h"
#include "parallel/mpi_wait.h"

namespace tessera::parallel {
namespace {

MPI_Datatype type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return MPI_FLOAT;
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kInt:
      return MPI_INT32_T;
    case at::kLong:
      return MPI_INT64_T;
    case at::kByte:
      return MPI_UINT8_T;
    default:
      fail("MPI: tensors of ", tensor.scalar_type(), " are not exchanged");
  }
}

int count_of(const at::Tensor& tensor) {
  check(tensor.is_contiguous() && tensor.device().is_cpu(),
        "MPI: a tensor must be contiguous and on the CPU");
  check(tensor.numel() <= std::numeric_limits<int>::max(), "MPI: a tensor of ", tensor.numel(),
        " elements is too large for one message");
  return static_cast<int>(tensor.numel());
}

MPI_Op operation(const c10d::ReduceOp& reduce) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(reduce.op_)) {
    case c10d::ReduceOp::SUM:
      return MPI_SUM;
    case c10d::ReduceOp::MAX:
      return MPI_MAX;
    default:
      fail("MPI: only sums and maxima are taken over processes");
  }
}

// A collective in flight: waits for its output tensors and returns them.
class MpiWork final : public c10d::Work {
 public:
  explicit MpiWork(c10::intrusive_ptr<c10::ivalue::Future> future) : future_(std::move(future)) {}
  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  // Throws if the collective did not end; MpiWait sets the timeout.
  bool wait(std::chrono::milliseconds) override {
    future_->waitAndThrow();
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Starts collectives one after another, in submission order.
class MpiThread {
 public:
  explicit MpiThread(std::shared_ptr<CollectiveLog> log) : log_(std::move(log)), thread_([this] { run(); }) {}
  ~MpiThread() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    ready_.notify_all();
    thread_.join();
  }

  c10::intrusive_ptr<c10d::Work> begin(const char* kind, const std::vector<at::Tensor>& result, size_t bytes,
                                       std::function<void(MPI_Request*)> start) {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    const Collective what = {kind, static_cast<int64_t>(bytes), steady_seconds(), 0};
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back({what, std::move(start), future, result});
    }
    ready_.notify_one();
    return c10::make_intrusive<MpiWork>(std::move(future));
  }

 private:
  struct Job {
    Collective what;
    std::function<void(MPI_Request*)> start;
    c10::intrusive_ptr<c10::ivalue::Future> future;
    std::vector<at::Tensor> result;
  };

  void run() {
    while (true) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      const std::string lost = wait_.complete(
          job.start,
          text("exchange '", job.what.kind, "' of ", human_bytes(static_cast<uint64_t>(job.what.bytes))));
      if (!lost.empty()) {
        job.future->setError(std::make_exception_ptr(Error(ErrorKind::failed, lost)));
        continue;
      }
      job.what.seconds = steady_seconds() - job.what.began;
      log_->add(job.what);
      job.future->markCompleted(c10::IValue(job.result));
    }
  }

  std::shared_ptr<CollectiveLog> log_;
  MpiWait wait_;  // used only by the thread
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

class MpiBackend final : public c10d::Backend {
 public:
  // For `allreduce`: the kind under which its sums are logged.
  MpiBackend(int rank, int size, const char* allreduce, std::shared_ptr<MpiThread> thread)
      : Backend(rank, size), sum_(allreduce), thread_(std::move(thread)) {}
  const std::string getBackendName() const override { return "mpi"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const at::Tensor tensor = one(tensors);
    const MPI_Op op = operation(options.reduceOp);
    return thread_->begin(sum_, tensors, tensor.nbytes(), [=](MPI_Request* request) {
      MPI_Iallreduce(MPI_IN_PLACE, tensor.mutable_data_ptr(), count_of(tensor), type_of(tensor), op,
                     MPI_COMM_WORLD, request);
    });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    const at::Tensor tensor = one(tensors);
    const auto root = static_cast<int>(options.rootRank);
    return thread_->begin(kBroadcast, tensors, tensor.nbytes(), [=](MPI_Request* request) {
      MPI_Ibcast(tensor.mutable_data_ptr(), count_of(tensor), type_of(tensor), root, MPI_COMM_WORLD, request);
    });
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions&) override {
    const at::Tensor input = one(inputs);
    check(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == getSize(),
          "MPI: allgather needs room for one tensor a process");
    // MPI fills one block of memory; the outputs are copied from it.
    const at::Tensor all = at::empty({getSize(), input.numel()}, input.options());
    const size_t bytes = input.nbytes() * static_cast<size_t>(getSize());
    auto work = thread_->begin(kGather, outputs[0], bytes, [=](MPI_Request* request) {
      MPI_Iallgather(input.const_data_ptr(), count_of(input), type_of(input), all.mutable_data_ptr(),
                     count_of(input), type_of(input), MPI_COMM_WORLD, request);
    });
    work->wait();
    for (int rank = 0; rank < getSize(); ++rank)
      outputs[0][static_cast<size_t>(rank)].copy_(all[rank].view_as(outputs[0][static_cast<size_t>(rank)]));
    return work;
  }
  // Exchanges rows with every process, by rank; logged as the bytes sent to the next process.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_rows,
                                               std::vector<int64_t>& input_rows,
                                               const c10d::AllToAllOptions&) override {
    const at::Tensor from = one({input}), to = one({output});
    const Spread sent = spread(from, input_rows), received = spread(to, output_rows);
    return thread_->begin(kRing, {to}, from.nbytes(), [=](MPI_Request* request) {
      MPI_Ialltoallv(from.const_data_ptr(), sent.counts.data(), sent.begins.data(), type_of(from),
                     to.mutable_data_ptr(), received.counts.data(), received.begins.data(), type_of(to),
                     MPI_COMM_WORLD, request);
    });
  }

 private:
  // The elements of a tensor by rank.
  struct Spread {
    std::vector<int> counts, begins;
  };
  Spread spread(const at::Tensor& tensor, const std::vector<int64_t>& rows) const {
    const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    check(static_cast<int>(rows.size()) == getSize() && all == tensor.size(0), "MPI: ", tensor.size(0),
          " rows are not the ", all, " of ", rows.size(), " processes");
    const int64_t width = all > 0 ? tensor.numel() / all : 0;
    Spread out;
    int64_t begin = 0;
    for (const int64_t own : rows) {
      out.counts.push_back(static_cast<int>(own * width)), out.begins.push_back(static_cast<int>(begin));
      begin += own * width;
    }
    return out;
  }
  static at::Tensor one(const std::vector<at::Tensor>& tensors) {
    check(tensors.size() == 1, "MPI: a collective takes one tensor, not ", tensors.size());
    count_of(tensors[0]), type_of(tensors[0]);  // invalid tensors fail here, not in the thread
    return tensors[0];
  }

  const char* sum_;
  std::shared_ptr<MpiThread> thread_;
};

}  // namespace

Launched launch_mpi(const std::shared_ptr<CollectiveLog>& log) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  check(provided >= MPI_THREAD_SERIALIZED, "this MPI cannot be used from more than one thread");
  Launched out;
  MPI_Comm_rank(MPI_COMM_WORLD, &out.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &out.size);
  MPI_Comm machine;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, out.rank, MPI_INFO_NULL, &machine);
  MPI_Comm_size(machine, &out.local_size);
  MPI_Comm_rank(machine, &out.local_rank);
  MPI_Comm_free(&machine);
  const auto thread = std::make_shared<MpiThread>(log);
  out.gradients = c10::make_intrusive<MpiBackend>(out.rank, out.size, kGradients, thread);
  out.others = c10::make_intrusive<MpiBackend>(out.rank, out.size, kSum, thread);
  return out;
}

void leave_mpi() { MPI_Finalize(); }

void abort_mpi(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace tessera::parallel
