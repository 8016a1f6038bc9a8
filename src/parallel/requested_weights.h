// Divided weights for passes that differ by process, such as evaluations of unequal shares, and pictures that one process
// draws.
//
//   RequestedWeights requested(weights);
//   const nn::UnitScope scope(&requested);
//   … any number of passes without gradients …
//   requested.wait_for_all();
//   world.gather(results);
//
// Passes take place in rounds. In a round each process names the unit that it runs next, or none, and all processes gather
// the units that were named. So a process that waits in another exchange would stop the others: it first answers their
// requests until all of them wait.
#pragma once

#include <vector>

#include "parallel/divided_weights.h"

namespace tessera::parallel {

class RequestedWeights final : public nn::UnitKeeper {
 public:
  // `weights` must outlive it.
  explicit RequestedWeights(DividedWeights& weights) : weights_(weights) {}

  void enter(const std::vector<torch::Tensor>& parameters) override;
  void leave(const std::vector<torch::Tensor>& parameters) override;
  // Throws Error: there are no gradients.
  void enter_backward(const std::vector<torch::Tensor>& parameters) override;
  // Answers the requests of other processes until each process of the axis has called it. Call it before any other exchange,
  // and after the last pass.
  void wait_for_all();

 private:
  bool round(int64_t mine);

  DividedWeights& weights_;
};

}  // namespace tessera::parallel
