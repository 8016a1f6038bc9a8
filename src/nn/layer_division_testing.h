// For tests of divided layers: threads that each play one of the processes.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>
#include <torch/torch.h>

#include <atomic>
#include <barrier>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "nn/layer_division.h"

namespace tessera::nn {

// Sums over the threads.
class ThreadDivision final : public LayerDivision {
 public:
  struct Meeting {
    explicit Meeting(int64_t threads) : barrier(threads), values(static_cast<size_t>(threads)) {}
    std::barrier<> barrier;
    std::vector<torch::Tensor> values;
    std::atomic<int64_t> sums = 0;
  };
  ThreadDivision(Meeting& meeting, int64_t rank) : meeting_(meeting), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return std::ssize(meeting_.values); }
  void sum(const torch::Tensor& values) const override {
    const torch::NoGradGuard no_grad;
    ++meeting_.sums;
    meeting_.values[static_cast<size_t>(rank_)] = values;
    meeting_.barrier.arrive_and_wait();
    torch::Tensor total = meeting_.values[0].clone();
    for (size_t i = 1; i < meeting_.values.size(); ++i) total += meeting_.values[i];
    meeting_.barrier.arrive_and_wait();
    torch::Tensor(values).copy_(total);
    meeting_.barrier.arrive_and_wait();
  }

 private:
  Meeting& meeting_;
  int64_t rank_;
};

// The output of a module, and the gradients of its parameters.
struct PassResult {
  torch::Tensor output;
  std::vector<torch::Tensor> gradients;
};

using MakeModule = std::function<std::shared_ptr<torch::nn::Module>()>;
using RunModule = std::function<torch::Tensor(torch::nn::Module&)>;

inline PassResult pass_of(torch::nn::Module& module, const RunModule& run) {
  PassResult result{run(module).to(torch::kFloat64), {}};
  const torch::Tensor weights =
      torch::linspace(-1, 1, result.output.numel(), torch::kFloat64).view(result.output.sizes());
  (result.output * weights).sum().backward();
  for (const torch::Tensor& parameter : module.parameters())
    result.gradients.push_back(parameter.grad().defined() ? parameter.grad() : torch::zeros_like(parameter));
  return result;
}

// Calls a function with each number below `count`, in threads of one core each. Throws what one of them has thrown.
inline void in_threads(
    int64_t count, const std::function<void(int64_t)>& call, const std::function<void()>& failed = [] {}) {
  std::vector<std::exception_ptr> failures(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      omp_set_num_threads(1);
      try {
        call(i);
      } catch (...) {
        failures[static_cast<size_t>(i)] = std::current_exception();
        failed();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// Compares a module that `processes` divide with the same module in one process. `make` returns the same weights in each
// call; `run` may be called in several threads. Returns the number of sums over the processes.
inline int64_t expect_divides(int64_t processes, const MakeModule& make, const RunModule& run,
                              double tolerance = 1e-10) {
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  PassResult want;
  in_threads(1, [&](int64_t) {
    for (int64_t i = 0; i <= processes; ++i) modules.push_back(make());
    want = pass_of(*modules.back(), run);
  });
  ThreadDivision::Meeting meeting(processes);
  std::vector<PassResult> found(static_cast<size_t>(processes));
  const auto pass = [&](int64_t rank) {
    const ThreadDivision division(meeting, rank);
    const LayerDivisionScope scope(&division);
    found[static_cast<size_t>(rank)] = pass_of(*modules[static_cast<size_t>(rank)], run);
  };
  in_threads(processes, pass, [&] { meeting.barrier.arrive_and_drop(); });
  for (const PassResult& one : found)
    EXPECT_TRUE(torch::allclose(one.output, want.output, tolerance, tolerance))
        << (one.output - want.output).abs().max();
  const auto names = modules.back()->named_parameters();
  for (size_t k = 0; k < want.gradients.size(); ++k) {
    torch::Tensor mean = torch::zeros_like(want.gradients[k]);
    for (const PassResult& one : found) mean += one.gradients[k] / processes;
    EXPECT_TRUE(torch::allclose(mean, want.gradients[k], 10 * tolerance, 10 * tolerance))
        << names[k].key() << " " << (mean - want.gradients[k]).abs().max();
  }
  return meeting.sums;
}

}  // namespace tessera::nn
