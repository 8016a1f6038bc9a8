// ZeRO, stages 1 and 2 (Rajbhandari et al. 2020): every process has all weights and updates its rows of them.
//
//   Shards shards(world, layout, trained, config.zero);
//   for each piece of a step:
//     shards.begin(last);
//     loss.backward();
//     shards.end();
//   … now shards.parts() have gradients, rows of the mean over all processes, and the whole tensors have none …
//   optimiser.step();               // of the parts, with its state for these rows only
//   shards.gather(shards.wholes());
//
// Gradients travel in buckets during the backward pass: one reduce-scatter of the trained weights a step (stage 2: a
// piece), one all-gather after it. Stage 1 adds up whole gradients of a step's pieces, stage 2 keeps those of its own
// rows alone. The result does not depend on the stage except for the order of sums.
#pragma once

#include <cstdint>
#include <memory>

#include "parallel/layout.h"
#include "parallel/world.h"

namespace tessera::parallel {

class Shards {
 public:
  // `trained`: the same tensors in the same order in all processes. `world` must outlive it.
  Shards(const World& world, Layout layout, const NamedTensors& trained, int64_t stage);
  ~Shards();
  Shards(const Shards&) = delete;

  const Layout& layout() const;
  const NamedTensors& wholes() const;
  const NamedTensors& parts() const;

  // Call before and after each backward pass of a step. Tensors that got no gradient in any process have none in their
  // parts after the last one.
  void begin(bool last);
  void end();

  // Fills in the rows that other processes hold. All tensors must be in the layout.
  void gather(const NamedTensors& wholes) const;
  // Returns the whole tensor at its owner, an undefined one elsewhere.
  torch::Tensor join(const std::string& name, const torch::Tensor& part) const;
  // True for one process of those that have the same rows.
  bool first_copy() const;
  // Returns the p-norm of the tensors of all processes. `own`: the norm of this process's tensors.
  double norm_of_all(double own, double p) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // also in the hooks of the tensors
};

}  // namespace tessera::parallel
