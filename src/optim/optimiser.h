// Optimisers over named parameters.
//
//   OptimiserSpec spec = resolve_optimiser(recipe_table);                       // name, lr, weight_decay, …
//   auto groups = make_parameter_groups(*model, spec.common, model->no_weight_decay());
//   auto optimiser = make_optimiser(spec, std::move(groups));
//   … backward …
//   optimiser->step(schedule.rate(s) , clip.scale);
//
// A new optimiser is one file optimiser_<name>.cpp and one line in the table of optimiser.cpp.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/config.h"
#include "core/value.h"
#include "optim/optimiser_groups.h"

namespace tessera::train {

// The keys that every optimiser has; each adds its own.
struct OptimiserSettings {
  std::string name = "adamw";
  double lr = 1e-3;            // the schedule's base
  double lr_batch = 0;         // lr is for batches of so many pictures and grows with the batch; 0 = as it is
  double weight_decay = 0.05;  // of parameters with two or more dimensions
  double layer_decay = 1;      // factor on the learning rate from each layer to the one before it; 1 = off
  std::vector<ParameterRule> groups;  // parameters with a rate or a decay of their own

  template <class V>
  void visit(V& v) {
    v("name", name, "adamw, adam, lamb, lars, muon or sgd"), v("lr", lr, "base learning rate");
    v("lr_batch", lr_batch,
      "lr is for batches of so many: it is multiplied by batch_size / lr_batch; 0 = off");
    v("weight_decay", weight_decay, "of parameters with two or more dimensions");
    v("layer_decay", layer_decay, "learning-rate factor from each layer to the one before it; 1 = off");
    v("groups", groups,
      "[[optimiser.groups]]: pattern, lr_scale, weight_decay of parameters that learn in another way");
  }
};

struct OptimiserSpec {
  OptimiserSettings common;
  // The rate for batches of this size.
  double lr_for(int64_t batch_size) const {
    return common.lr_batch > 0 ? common.lr * static_cast<double>(batch_size) / common.lr_batch : common.lr;
  }
  Value settings;  // complete: every key with its value
};

class Optimiser {
 public:
  virtual ~Optimiser() = default;
  Optimiser(const Optimiser&) = delete;

  // One update with the gradients times `gradient_scale` (what clipping by norm found). A group's rate is
  // lr * lr_scale. Parameters without a gradient are left alone.
  void step(double lr, double gradient_scale = 1);
  // Forgets the gradients: a parameter that gets none in the next step is then left alone.
  void zero_grad();

  int64_t steps() const { return steps_; }
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  std::vector<torch::Tensor> parameters() const;

  // What a checkpoint keeps besides steps(): "exp_avg.<parameter>", …, the tensors themselves, not copies. A
  // parameter that got fewer updates than steps() has an int64 "updates.<parameter>".
  NamedTensors state() const;
  // Copies a saved state in. A tensor that is missing, of no use here or of another shape is an error that
  // names it.
  void load_state(int64_t steps, const NamedTensors& tensors);

  // Forces the composition of tensor operations where the one-pass loops would do (float32 on the CPU).
  void use_composition(bool on) { composition_ = on; }

 protected:
  struct Slot {
    std::string name;
    torch::Tensor parameter, gradient;  // the gradient of the step in progress
    double lr_scale = 1, weight_decay = 0;
    int64_t updates = 0;  // that this parameter has got, the one in progress included
    std::vector<std::string> state_names;
    std::vector<torch::Tensor> state;  // in their order
  };
  using Slots = std::vector<Slot*>;

  Optimiser(std::vector<ParameterGroup> groups, const std::vector<std::string>& state_names);
  // The same where parameters differ in what is kept of them.
  using StateNames = std::function<std::vector<std::string>(const std::string& name, const torch::Tensor&)>;
  Optimiser(std::vector<ParameterGroup> groups, const StateNames& state_names);

  // A factor on the gradients that depends on all of them (LAMB's global norm).
  virtual double rescale(const Slots&, double gradient_scale) { return gradient_scale; }
  // The update in tensor operations: any dtype and device, and the definition of the other form.
  virtual void update_tensors(const Slots& slots, double lr, double gradient_scale) = 0;
  // The same on contiguous float32 in main memory, one pass over memory, shared by the threads.
  virtual void update_plain(const Slots& slots, double lr, double gradient_scale) = 0;

 private:
  std::vector<ParameterGroup> groups_;
  std::vector<Slot> slots_;
  int64_t steps_ = 0;
  bool composition_ = false;
};

// Reads a recipe's table: `name` chooses the optimiser, whose own keys the rest must be. `where` is the
// table's path in error lines.
OptimiserSpec resolve_optimiser(const Value& settings, const std::string& where = "optimiser");
std::unique_ptr<Optimiser> make_optimiser(const OptimiserSpec& spec, std::vector<ParameterGroup> groups);
std::vector<std::string> optimiser_names();
// The keys of that one, "optimiser.lr" and so on, with their defaults.
std::vector<KeyDescription> optimiser_keys(const std::string& name);

}  // namespace tessera::train
