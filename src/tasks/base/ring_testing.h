// Runs the processes of a run as threads of a test, to exchange data in a ring.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

class RingOfThreads {
 public:
  // Calls `each` in each of `size` threads with the collective of its rank; rethrows what a thread throws.
  static void run(int64_t size, const std::function<void(Collective&)>& each) {
    RingOfThreads ring(size);
    std::vector<std::exception_ptr> thrown(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        try {
          Process process(ring, rank);
          each(process);
        } catch (...) {
          thrown[static_cast<size_t>(rank)] = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : thrown)
      if (error) std::rethrow_exception(error);
  }

 private:
  class Process final : public Collective {
   public:
    Process(RingOfThreads& ring, int64_t rank) : ring_(ring), rank_(rank) {}
    torch::Tensor gather(const torch::Tensor&, int64_t, int64_t) override {
      fail("nothing of all processes should be held at once");
    }
    // Without a graph: every process sends its values once round the ring.
    torch::Tensor sum(const torch::Tensor& values) override {
      torch::Tensor sum = values.clone(), block = values;
      for (int64_t step = 1; step < size(); ++step) {
        block = pass_on(block, values.size(0))();
        sum += block;
      }
      return sum;
    }
    int64_t rank() const override { return rank_; }
    int64_t size() const override { return std::ssize(ring_.arrived_); }
    std::function<torch::Tensor()> pass_on(const torch::Tensor& rows, int64_t count) override {
      ring_.put(rows.detach().clone(), (rank_ + 1) % size());
      return [this, count] { return ring_.take(rank_, count); };
    }

   private:
    RingOfThreads& ring_;
    int64_t rank_;
  };

  explicit RingOfThreads(int64_t size) : arrived_(static_cast<size_t>(size)) {}
  void put(const torch::Tensor& rows, int64_t rank) {
    const std::lock_guard lock(mutex_);
    arrived_[static_cast<size_t>(rank)].push_back(rows);
    changed_.notify_all();
  }
  torch::Tensor take(int64_t rank, int64_t count) {
    std::unique_lock lock(mutex_);
    auto& own = arrived_[static_cast<size_t>(rank)];
    check(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !own.empty(); }), "process ", rank,
          " waits for rows that do not come");
    const torch::Tensor rows = own.front();
    own.pop_front();
    check(rows.size(0) == count, "process ", rank, " expects ", count, " rows, ", rows.size(0), " come");
    return rows;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<torch::Tensor>> arrived_;
};

}  // namespace tessera::tasks
