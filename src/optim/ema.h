// An exponential moving average of a model's parameters and buffers (timm's ModelEmaV2):
//   average <- d average + (1 - d) model, after every update.
// Integer buffers are averaged too, and truncated. With warm-up (ModelEmaV3) the t-th update, counted from 1,
// uses
//   d = min(decay, 1 - t^(-2/3)),
// so that the first update copies the model.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nn/named_tensors.h"

namespace tessera::train {

struct EmaConfig {
  double decay = 0.9999;
  bool warmup = false;
  void check(const std::string& where = "ema") const;
};

// A moving average that an optimiser's kernel computes in its own pass (Optimiser::step_there): average <- average + share (model -
// average).
struct AveragingThere {
  torch::Tensor share;  // [] float32 on the device; 0: no change
  std::vector<std::pair<torch::Tensor, torch::Tensor>>
      pairs;        // of model and average; a taken one is undefined
  size_t next = 0;  // parameters come in the order of the pairs
  // Returns the average of a parameter and takes the pair; undefined if there is none like it, of float32.
  torch::Tensor take(const torch::Tensor& parameter);
};

class Ema {
 public:
  // Starts with a copy of the model's current tensors.
  Ema(const EmaConfig& config, const NamedTensors& model);

  // The model's tensors must have the names, order and shapes given to the constructor.
  void update(const NamedTensors& model);
  // The same in two parts, if `counts`, a [] bool on the model's device, is true; else nothing changes. Between them an optimiser takes
  // the pairs that it averages. Nothing is read back.
  AveragingThere begin_there(const NamedTensors& model, const torch::Tensor& counts);
  static void finish_there(const AveragingThere& rest, const torch::Tensor& counts);
  // Swaps the contents with the model's, without copying. Call it before and after an evaluation.
  void exchange(const NamedTensors& model);
  // The same for views of the model's tensors, by copying.
  void exchange_rows(const NamedTensors& rows);

  // Waits for the device after begin_there().
  int64_t updates() const;
  double decay_at(int64_t update) const;  // the decay of this update, counted from 1
  const NamedTensors& tensors() const { return average_; }
  // Loads saved tensors, and frees each of them after its copy. Throws Error with the name of a missing, unknown or
  // wrongly shaped tensor.
  void load_state(int64_t updates, NamedTensors tensors);

 private:
  void check_same(const NamedTensors& model) const;
  torch::Tensor share_there(const torch::Tensor& counts);

  EmaConfig config_;
  NamedTensors average_;
  int64_t updates_ = 0;
  torch::Tensor updates_there_;  // after begin_there(): [] float64 on the device, instead of updates_
};

}  // namespace tessera::train
