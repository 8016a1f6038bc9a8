// ZeRO, stages 1 to 3 (Rajbhandari et al. 2020): every process updates its rows of the weights.
//
//   Shards shards(world, layout, trained, config.zero, {nn::units_of(model), frozen});
//   for each piece of a step:
//     const nn::UnitScope units(shards.units());
//     shards.begin(last);
//     loss(…).backward();
//     shards.end();
//   … now shards.parts() have gradients, rows of the mean over all processes, and the whole tensors have none …
//   optimiser.step();               // of the parts, with its state for these rows only
//   shards.updated();
//
// Gradients travel in buckets during the backward pass: one reduce-scatter of the trained weights a step (stage 2: a
// piece), one all-gather after it. Stage 1 adds up whole gradients of a step's pieces, stage 2 keeps those of its own
// rows alone. Stage 3 also divides the weights, frozen ones too: blocks gather theirs while they run
// (divided_weights.h). The result does not depend on the stage except for the order of sums.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "nn/units.h"
#include "parallel/layout.h"
#include "parallel/requested_weights.h"
#include "parallel/world.h"

namespace tessera::parallel {

// What stage 3 divides next to the trained parameters, and the blocks that gather their own.
struct DividedBlocks {
  std::vector<std::vector<torch::Tensor>> units = {};
  NamedTensors frozen = {};
  std::vector<torch::Tensor> rounded =
      {};  // weights that every reader rounds to bfloat16: they travel so to a block
  // Where all of them go, one after the other, so that it never has all of them whole; none: they stay.
  std::optional<torch::Device> device = {};
  // With a pipeline, the process that runs each unit and has its weights whole (pipeline.h). The stage is then of no matter.
  std::vector<int> places = {};
  bool pipelined() const { return !places.empty(); }
};

class Shards {
 public:
  // The same tensors in the same order in all processes. `world` must outlive it.
  Shards(const World& world, Layout layout, const NamedTensors& trained, int64_t stage,
         const DividedBlocks& blocks = {});
  ~Shards();
  Shards(const Shards&) = delete;

  const Layout& layout() const;
  const NamedTensors& wholes() const;
  const NamedTensors& parts() const;

  // Call before and after each backward pass of a step. Tensors that got no gradient in any process have none in their
  // parts after the last one.
  void begin(bool last);
  void end();

  // True if processes have rows of weights alone.
  bool divides_weights() const;
  // Returns what keeps the weights of blocks in training; null if they are whole where they run.
  nn::UnitKeeper* units() const;
  // Returns the same for evaluations; null likewise.
  std::unique_ptr<RequestedWeights> requested() const;
  // Returns this process's rows of tensors of the layout: those that it updates, or views of the whole tensors.
  NamedTensors rows_of(const NamedTensors& wholes) const;
  // Returns those that every process has whole between steps.
  NamedTensors undivided(NamedTensors wholes) const;
  // Call after the parts have changed: brings the whole tensors up to date, frozen ones if `frozen`. Collective.
  void updated(bool frozen = false) const;
  // Call after whole tensors have changed, such as by loading, for the parts to follow.
  void take() const;
  // Fills in the rows that other processes hold. All tensors must be in the layout. Weights that are divided are whole
  // until release(). Collective.
  void gather(const NamedTensors& wholes) const;
  void release() const;
  // True if this process is the owner of a tensor.
  bool owns(const std::string& name) const;
  // Returns the whole tensor at its owner, or at the axis's first process, an undefined one elsewhere.
  torch::Tensor join(const std::string& name, const torch::Tensor& part) const;
  torch::Tensor join_at_first(const std::string& name, const torch::Tensor& part) const;
  // True for one process of those that have the same rows.
  bool first_copy() const;
  // Returns the p-norm of the tensors of all processes. `own`: the norm of this process's tensors.
  double norm_of_all(double own, double p) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // also in the hooks of the tensors
};

}  // namespace tessera::parallel
