// Data parallelism: each process computes the gradients of its share of a batch. PyTorch's Reducer averages
// them in buckets during the backward pass (Li et al. 2020).
//
//   GradientMean mean(world, parameters);
//   … forward of the step's last piece …
//   mean.prepare(loss);
//   loss.backward();          // afterwards all processes have the same gradients: the mean over processes
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "parallel/world.h"

namespace tessera::parallel {

class GradientMean {
 public:
  // Takes the parameters that require gradients, in the same order in all processes. `may_skip`: a backward
  // pass may not reach some of them (if drop path dropped a branch for all samples of a process).
  GradientMean(World& world, const std::vector<torch::Tensor>& parameters, bool may_skip);
  ~GradientMean();

  // Call before the backward pass from `loss`. Earlier passes of a step, without prepare(), only accumulate.
  void prepare(const torch::Tensor& loss);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::parallel
