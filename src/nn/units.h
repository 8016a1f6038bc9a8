// How a stack runs a block: with the block's whole weights, and recomputed for its gradient if the recipe sets that.
//
//   x = nn::run_unit(x, {.body = [&](const torch::Tensor& in) { return block->forward(in, context); },
//                        .parameters = [&] { return block->parameters(); },
//                        .recompute = checkpointing && is_training()});
#pragma once

#include "ops/torch.h"

#include <functional>
#include <vector>

namespace tessera::nn {

// A block of a stack, from one tensor to another. It must compute the same when it is called again.
struct Unit {
  std::function<torch::Tensor(const torch::Tensor&)> body;
  std::function<std::vector<torch::Tensor>()> parameters;  // those that the body reads
  bool recompute = false;                                  // drops the activations and computes them again
  // Other tensors with gradients that the body reads; none may depend on another.
  std::vector<torch::Tensor> reads = {};
};

// Runs units in place of run_unit.
class UnitRunner {
 public:
  virtual ~UnitRunner() = default;
  virtual torch::Tensor run(const torch::Tensor& x, const Unit& unit) = 0;
};

// Holds the weights of units while they run. Units come in the same order in all processes.
class UnitKeeper : public UnitRunner {
 public:
  torch::Tensor run(const torch::Tensor& x, const Unit& unit) final;
  // Makes the parameters whole before the unit's forward pass, and gives them back after it.
  virtual void enter(const std::vector<torch::Tensor>& parameters) = 0;
  virtual void leave(const std::vector<torch::Tensor>& parameters) = 0;
  // Makes them whole before the unit's backward pass, which ends before that of another unit begins.
  virtual void enter_backward(const std::vector<torch::Tensor>& parameters) = 0;
};

// While it lives, `runner` runs the units of this thread. It may be null and must outlive their backward passes.
class UnitScope {
 public:
  explicit UnitScope(UnitRunner* runner);
  ~UnitScope();
  UnitScope(const UnitScope&) = delete;
  UnitScope& operator=(const UnitScope&) = delete;
  // Returns that of this thread.
  static UnitRunner* runner();

 private:
  UnitRunner* before_;
};

torch::Tensor run_unit(const torch::Tensor& x, const Unit& unit);
// Runs it with the weights as they are, without the thread's runner.
torch::Tensor run_unit_here(const torch::Tensor& x, const Unit& unit);

// Returns function(x), keeping only x; backward calls the function again (Chen et al. 2016). `parameters` are
// those that the function reads; they get gradients. The function must be repeatable: draw random numbers
// only from counter-based streams. Autocast is restored for the second call.
torch::Tensor checkpoint(const std::function<torch::Tensor(const torch::Tensor&)>& function,
                         const torch::Tensor& x, const std::vector<torch::Tensor>& parameters);

// True while this thread recomputes a block for its gradient. Layers then skip updates that happen once per
// step (running statistics).
bool recomputing();

// A module that runs its blocks by run_unit.
class Stack {
 public:
  virtual ~Stack() = default;
  // Returns the parameters of each unit, which nothing else reads.
  virtual std::vector<std::vector<torch::Tensor>> units() const = 0;
  virtual void set_checkpointing(bool on) { checkpointing = on; }
  bool checkpointing = false;
};

// Sets it in all stacks of a module.
void set_checkpointing(torch::nn::Module& module, bool on);
// Returns the units of all stacks of a module.
std::vector<std::vector<torch::Tensor>> units_of(torch::nn::Module& module);
// Returns the parameters of each module.
template <class Modules>
std::vector<std::vector<torch::Tensor>> parameters_of_each(const Modules& modules) {
  std::vector<std::vector<torch::Tensor>> units;
  for (const auto& module : modules) units.push_back(module->parameters());
  return units;
}

}  // namespace tessera::nn
