// An axis of the processes: a group in which each has a rank.
//
//   Axis& axis = world.samples();
//   const auto wait = axis.start_sum(values);   // every process of the axis must call it, in the same order
//   …
//   wait();
//
// Exchanges on one axis start in the same order in all of its processes; axes are independent of each other.
// Tensors are contiguous, on the CPU or on this process's GPU, and unchanged until the wait has returned. On an
// axis of size 1 an exchange only copies. If a process dies or does not come within TESSERA_WAIT_SECONDS, an
// exchange on the CPU throws Lost with the process, the axis, and the kind and number of the exchange; on a GPU
// NCCL's watchdog ends the process (SIGABRT).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::parallel {

struct Channels;  // engines.h

class Axis {
 public:
  using Wait = std::function<void()>;

  // Of this process alone.
  explicit Axis(std::string name = "all");
  // `members`: ranks in the world, in order; `rank`: the index of this process among them.
  Axis(std::string name, std::vector<int> members, int rank, std::shared_ptr<Channels> channels);

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const { return members_; }

  // Sums floats (also bfloat16) or integers in place. All processes get the same bits.
  Wait start_sum(const torch::Tensor& values) const;
  // Gathers `rows` [counts[rank], …] of each process into `into` [sum of counts, …], in the order of ranks.
  Wait start_gather(const torch::Tensor& rows, const torch::Tensor& into,
                    const std::vector<int64_t>& counts) const;
  // Sends `sent[r]` rows of `rows`, in order, to each process r, and receives `received[r]` rows into `into`.
  Wait start_exchange(const torch::Tensor& rows, const std::vector<int64_t>& sent, const torch::Tensor& into,
                      const std::vector<int64_t>& received) const;
  // Puts this process's rows [counts[rank], …] of the sum of all processes' `whole` [sum of counts, …] into
  // `into`. On the CPU, and for unequal counts, the terms are added in the order of ranks.
  Wait start_scatter_sum(const torch::Tensor& whole, const torch::Tensor& into,
                         const std::vector<int64_t>& counts) const;
  // Sends `rows` to the process `by` ranks after this one (cyclic), and receives those of the process `by` ranks
  // before it. Numbers of rows may differ, and may be 0.
  Wait start_shift(const torch::Tensor& rows, const torch::Tensor& into, int by = 1) const;
  // Copies `values` of rank 0 to all processes.
  Wait start_broadcast(const torch::Tensor& values) const;

  void sum(const torch::Tensor& values) const { start_sum(values)(); }
  // Returns the numbers [k] of all processes: [size, k], int64 on the CPU.
  torch::Tensor gather_counts(const std::vector<int64_t>& mine) const;
  // The same as start_gather and start_scatter_sum, waited for.
  torch::Tensor gather(const torch::Tensor& rows, const std::vector<int64_t>& counts) const;
  torch::Tensor scatter_sum(const torch::Tensor& whole, const std::vector<int64_t>& counts) const;

 private:
  Wait exchange(const char* kind, const torch::Tensor& rows, const std::vector<int64_t>& sent,
                const torch::Tensor& into, const std::vector<int64_t>& received) const;

  std::string name_;
  std::vector<int> members_;
  int rank_ = 0;
  std::shared_ptr<Channels> channels_;  // null: alone
};

}  // namespace tessera::parallel
