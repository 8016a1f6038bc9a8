// Running means of the loss and the task's metrics, kept on the device so that steps do not wait for it.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/value.h"
#include "runs/run_directory.h"

namespace tessera::train {

// Means over this process's part of a step (scalars on the device, without a graph), and that part's share of
// the step.
struct StepMeans {
  torch::Tensor loss;
  std::vector<torch::Tensor> terms;
  double loss_share = 1;  // share of the loss's total weight
  double share = 1;       // by samples
};

class Meter {
 public:
  // Sums a float64 tensor over all processes, in place; empty: one process.
  using Reduce = std::function<void(const torch::Tensor&)>;

  // `names`: the task's terms; "loss" comes before them, and "grad_norm" after them if measured.
  Meter(std::vector<std::string> names, torch::Device device, bool with_gradient_norm);

  // gradient_norm: [] float64 on the device. `counts`: [] bool there, false: the values are left out, and drop() must
  // follow when the host reads it.
  void add(const StepMeans& means, const torch::Tensor& gradient_norm, const torch::Tensor& counts = {});
  // Takes back the count of such a step, by its share.
  void drop(double share) { interval_.steps -= share; }
  // Returns means since the last new_interval(); waits for the device. Empty before the first add().
  Metrics interval(const Reduce& reduce = {}) const;
  // Returns means over the epoch so far, including the current interval.
  Metrics epoch(const Reduce& reduce = {}) const;
  void new_interval();
  void new_epoch();

  // The sums themselves, so that a resumed run continues with the same bits.
  Value state(const Reduce& reduce = {}) const;
  void load_state(const Value& state);

 private:
  struct Sums {
    torch::Tensor values;  // [names + 1] float64, the gradient's norm at the end
    double steps = 0;      // each of several processes has only a share
  };
  Sums zero() const;
  static Sums reduced(const Sums& sums, const Reduce& reduce);
  Metrics means(const Sums& sums) const;
  Value state_of(const Sums& sums) const;
  Sums sums_of(const Value& state) const;

  std::vector<std::string> names_;
  torch::Device device_;
  bool with_gradient_norm_;
  Sums interval_, before_;  // before_: sums of this epoch before the current interval
};

}  // namespace tessera::train
