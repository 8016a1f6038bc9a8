// Data parallelism: every process computes the gradients of its share of a batch, PyTorch's Reducer averages
// them in buckets while the backward pass still runs (Li et al. 2020).
//
//   GradientMean mean(world, parameters);
//   … forward of the step's last piece …
//   mean.prepare(loss);
//   loss.backward();          // afterwards all processes hold the same gradients: the mean of everyone's
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "parallel/world.h"

namespace tessera::parallel {

class GradientMean {
 public:
  // The parameters of all processes, which require gradients, in the same order. `may_skip`: a backward pass
  // may leave some out (a branch that drop path dropped for all of a process' samples).
  GradientMean(World& world, const std::vector<torch::Tensor>& parameters, bool may_skip);
  ~GradientMean();

  // Before the backward pass from `loss`. Earlier passes of a step, without prepare(), only accumulate.
  void prepare(const torch::Tensor& loss);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::parallel
