// An exponential moving average of a model's parameters and buffers (timm's ModelEmaV2):
//   average <- d average + (1 - d) model, after every update.
// Integer buffers are averaged too, and truncated. With warm-up (ModelEmaV3) the t-th update, counted from 1,
// takes
//   d = min(decay, 1 - t^(-2/3)),
// so the first one copies the model.
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
  // Starts at a copy of the model as it is.
  Ema(const EmaConfig& config, const NamedTensors& model);

  // The model's tensors must be those it was made with: same names, order and shapes.
  void update(const NamedTensors& model);
  // Exchanges the contents with the model's, without copying: call it before an evaluation and again after
  // it.
  void exchange(const NamedTensors& model);

  int64_t updates() const { return updates_; }
  double decay_at(int64_t update) const;  // of the update with this number, counted from 1
  const NamedTensors& tensors() const { return average_; }
  // Copies saved tensors in; one that is missing, unknown or of another shape is an error that names it.
  void load_state(int64_t updates, const NamedTensors& tensors);

 private:
  void check_same(const NamedTensors& model) const;

  EmaConfig config_;
  NamedTensors average_;
  int64_t updates_ = 0;
};

}  // namespace tessera::train
