// Pipeline parallelism (Huang et al. 2019, "GPipe"): processes with the same samples each run a range of a model's blocks.
//
//   Pipeline pipeline(world, units);
//   {
//     const nn::UnitScope scope(&pipeline);
//     const bool here = pipeline.forward([&] { loss = …; });   // true in the last process, which has the loss
//   }
//   …                                                          // up to ahead() more forward passes
//   pipeline.backward(here ? loss : torch::Tensor());          // of the oldest piece
//   pipeline.end_step();
//
// A step's pieces follow each other through the processes in the order of Narayanan et al. 2019 (PipeDream's 1F1B): a process
// has at most one piece more in memory than there are processes after it. All processes run what comes before the blocks; the
// last one alone runs what follows them. The mean of a weight's gradients over all processes is the gradient of the undivided
// model, as in data parallelism.
//
// The output of a block may go to the next block alone. Other readers are found: what other processes run is NaN here, and the
// backward pass throws Error where it comes to it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "nn/units.h"
#include "parallel/world.h"

namespace tessera::parallel {

// Returns the process of each block: ranges with about equal numbers of values, each with a block at least. There must be as
// many blocks as processes.
std::vector<int> divide_units(const std::vector<std::vector<torch::Tensor>>& units, int64_t processes);

class Pipeline final : public nn::UnitRunner {
 public:
  // `units`: those of the whole model, in the order in which they run.
  Pipeline(const World& world, const std::vector<std::vector<torch::Tensor>>& units);

  // Returns the number of forward passes before the first backward pass of a step.
  int64_t ahead() const;
  // Calls `loss`, which runs the units. Returns true if it came to its end, which it does in the last process alone. Throws
  // Error if the units do not run one after the other, or if one changes the shape.
  bool forward(const std::function<void()>& loss);
  // The backward pass of the oldest piece. `loss`: its loss in the last process, undefined elsewhere.
  void backward(const torch::Tensor& loss);
  // Waits for the step's messages.
  void end_step();
  // Gives all processes the numbers of the last one.
  void share_last(const torch::Tensor& numbers) const;

  torch::Tensor run(const torch::Tensor& x, const nn::Unit& unit) override;

 private:
  struct Piece {
    torch::Tensor in, out;  // of this process's blocks; undefined at the ends of the model
  };
  void check_next(const nn::Unit& unit) const;
  torch::Tensor receive_output(const torch::Tensor& like);
  void send_output(const torch::Tensor& output);
  void send(const Axis& pair, const torch::Tensor& tensor);

  const World& world_;
  const int rank_, size_;
  std::vector<std::vector<torch::Tensor>> units_;
  std::vector<int> places_;
  size_t next_ = 0;  // unit
  std::deque<Piece> pieces_;
  std::deque<Axis::Wait> sent_;  // messages on their way, the oldest first
};

}  // namespace tessera::parallel
