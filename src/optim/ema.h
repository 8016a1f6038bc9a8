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

#include "nn/named_tensors.h"

namespace tessera::train {

struct EmaConfig {
  double decay = 0.9999;
  bool warmup = false;
  void check(const std::string& where = "ema") const;
};

class Ema {
 public:
  // Starts with a copy of the model's current tensors.
  Ema(const EmaConfig& config, const NamedTensors& model);

  // The model's tensors must have the names, order and shapes given to the constructor.
  void update(const NamedTensors& model);
  // The same if `counts`, a [] bool on the model's device, is true; else nothing changes. Nothing is read back.
  void update_there(const NamedTensors& model, const torch::Tensor& counts);
  // Swaps the contents with the model's, without copying. Call it before and after an evaluation.
  void exchange(const NamedTensors& model);
  // The same for views of the model's tensors, by copying.
  void exchange_rows(const NamedTensors& rows);

  // Waits for the device after update_there().
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
  torch::Tensor updates_there_;  // after update_there(): [] float64 on the device, instead of updates_
};

}  // namespace tessera::train
