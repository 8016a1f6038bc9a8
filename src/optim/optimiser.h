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
#include "kernels/gpu/calls.h"
#include "optim/clip.h"
#include "optim/ema.h"
#include "optim/offload.h"
#include "optim/optimiser_groups.h"

namespace tessera::train {

// The keys of every optimiser; each adds its own.
struct OptimiserSettings {
  std::string name = "adamw";
  double lr = 1e-3;                   // the schedule's base
  double lr_batch = 0;                // the batch size that lr is for; lr grows with the batch; 0 = off
  double weight_decay = 0.05;         // for parameters with two or more dimensions
  double layer_decay = 1;             // learning-rate factor from each layer to the one before; 1 = off
  std::vector<ParameterRule> groups;  // parameters with separate rate or decay

  template <class V>
  void visit(V& v) {
    v("name", name, "adamw, adam, lamb, lars, muon or sgd"), v("lr", lr, "base learning rate");
    v("lr_batch", lr_batch, "batch size that lr is for: lr is multiplied by batch_size / lr_batch; 0 = off");
    v("weight_decay", weight_decay, "decay of parameters with two or more dimensions");
    v("layer_decay", layer_decay, "learning-rate factor from each layer to the previous one; 1 = off");
    v("groups", groups,
      "[[optimiser.groups]]: pattern, lr_scale, weight_decay for parameters with their own settings");
  }
};

struct OptimiserSpec {
  OptimiserSettings common;
  // Returns the learning rate for this batch size.
  double lr_for(int64_t batch_size) const {
    return common.lr_batch > 0 ? common.lr * static_cast<double>(batch_size) / common.lr_batch : common.lr;
  }
  Value settings;  // complete: every key and its value
};

// Begins the names of counts in Optimiser::state().
inline constexpr const char* kCountOfUpdates = "updates.";

class Optimiser {
 public:
  virtual ~Optimiser();
  Optimiser(const Optimiser&) = delete;

  // Updates with the gradients times `gradient_scale` (from clipping by norm). A group's rate is lr *
  // lr_scale, its weight decay is multiplied by `decay_factor`. Skips parameters without a gradient.
  void step(double lr, double gradient_scale = 1, double decay_factor = 1);
  // The same with a [] float32 factor on the parameters' GPU, which nothing reads back. If it is not finite, the
  // step is skipped: no tensor changes, and no count of updates. Takes the pairs that the kernel averages out of
  // `averaging`, if given. Throws Error unless updates_there().
  void step_there(double lr, const torch::Tensor& gradient_scale, double decay_factor,
                  AveragingThere* averaging = nullptr);
  // True if steps need nothing of the host: all parameters and gradients are here, on a GPU with kernels.
  bool updates_there() const;
  // Makes the kernel write copies in bfloat16 of these weights too, for products (ops/gpu.h): those among the parameters that it
  // updates, from the next step on.
  void keep_halves(const std::vector<torch::Tensor>& weights);
  // Drops the gradients: the next step skips parameters that get none.
  void zero_grad();

  // Returns the steps that were not skipped. Waits for the device after step_there(), as state() does.
  int64_t steps() const { return counts().back(); }
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  std::vector<torch::Tensor> parameters() const;

  // Returns the state for a checkpoint, in addition to steps(): "exp_avg.<parameter>", …, the tensors
  // themselves, not copies. A parameter with fewer updates than steps() has an int64 "updates.<parameter>".
  NamedTensors state() const;
  // Loads a saved state: tensors that nothing else holds become its own, others are copied. Throws Error with the
  // name of a missing, unused or wrongly shaped tensor.
  void load_state(int64_t steps, NamedTensors tensors);

  // Forces tensor operations instead of the one-pass loops (float32 on the CPU).
  void use_composition(bool on) { composition_ = on; }
  // Makes each step fetch the gradients to `copies`, which are this optimiser's parameters, and send the new values back.
  void follow(std::unique_ptr<Offload> copies) { copies_ = std::move(copies); }
  // If the parameters are this process's rows of larger ones: a norm of all gradients takes those of all processes.
  void use_norm_of_all(NormOfAll norm_of_all) { norm_of_all_ = std::move(norm_of_all); }

 protected:
  struct Slot {
    std::string name;
    torch::Tensor parameter, gradient;      // gradient: the current step's
    double lr_scale = 1, weight_decay = 0;  // of the current step
    double first_decay = 0;                 // its group's
    int64_t updates = 0;                    // of this parameter, including the current one; see counts_there_
    std::vector<std::string> state_names;
    std::vector<torch::Tensor> state;  // in the same order
    torch::Tensor half;                // the parameter in bfloat16, or undefined
  };
  using Slots = std::vector<Slot*>;

  Optimiser(std::vector<ParameterGroup> groups, const std::vector<std::string>& state_names);
  // The same with different state tensors for each parameter.
  using StateNames = std::function<std::vector<std::string>(const std::string& name, const torch::Tensor&)>;
  Optimiser(std::vector<ParameterGroup> groups, const StateNames& state_names);

  // Returns the 2-norm of the slots' gradients, over all processes.
  double norm_of(const Slots& slots) const;
  // A factor on the gradients that depends on all gradients (LAMB's global norm).
  virtual double rescale(const Slots&, double gradient_scale) { return gradient_scale; }
  // The update in tensor operations, for any dtype and device: the definition of update_plain().
  virtual void update_tensors(const Slots& slots, double lr, double gradient_scale) = 0;
  // The same on contiguous float32 in main memory, in one pass, divided among the threads.
  virtual void update_plain(const Slots& slots, double lr, double gradient_scale) = 0;
  // The update as a GPU's kernel computes it (kernels/optimiser): the numbers of all steps, and a parameter's decay and trust ratio.
  // Without a rule there is no kernel.
  virtual kernels::gpu::OptimiserStep kernel_step() const { return {}; }
  virtual void fill(kernels::gpu::OptimiserTensor& /*row*/, const Slot&) const {}
  // True if update_there() takes a parameter, which is float32 on a GPU with kernels.
  virtual bool has_kernel(const Slot&) const;
  // rescale() on the device.
  virtual torch::Tensor rescale_there(const Slots&, const torch::Tensor& gradient_scale) const {
    return gradient_scale;
  }
  // Updates by the kernel, with the factor on the device; weight decay is first_decay * decay_factor.
  virtual void update_there(const Slots& slots, double lr, double decay_factor, const torch::Tensor& scale,
                            AveragingThere* averaging);

 private:
  bool kernel_takes(const Slot& slot) const;
  void step(double lr, double gradient_scale, const torch::Tensor& scale_there, double decay_factor,
            AveragingThere* averaging);
  void count_there(const torch::Tensor& scale);
  kernels::gpu::OptimiserTensor row_of(const Slot& slot) const;
  void send_table(const std::vector<kernels::gpu::OptimiserTensor>& table, torch::Device device);
  std::vector<int64_t> counts() const;

  std::vector<ParameterGroup> groups_;
  std::vector<Slot> slots_;
  int64_t steps_ = 0;
  // After step_there(): float64 [slots + 1] on the device, the updates of each slot and the steps, without those that
  // were skipped. While it is defined, the counts of the host are out of date.
  torch::Tensor counts_there_;
  // The kernel's table and its copy on the device, which is made again only if it changes.
  std::vector<kernels::gpu::OptimiserTensor> table_;
  torch::Tensor table_there_;
  bool composition_ = false;
  NormOfAll norm_of_all_;  // empty: the gradients here are all
  std::unique_ptr<Offload> copies_;
};

// Reads a recipe's table: `name` chooses the optimiser; the other keys must be its own. `where`: the table's
// path for errors.
OptimiserSpec resolve_optimiser(const Value& settings, const std::string& where = "optimiser");
std::unique_ptr<Optimiser> make_optimiser(const OptimiserSpec& spec, std::vector<ParameterGroup> groups);
std::vector<std::string> optimiser_names();
// True if an update of a parameter's rows depends on its other rows.
bool reads_whole_tensors(const std::string& name);
// Returns that optimiser's keys, "optimiser.lr" and so on, with their defaults.
std::vector<KeyDescription> optimiser_keys(const std::string& name);

}  // namespace tessera::train
