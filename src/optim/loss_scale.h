// The loss scale that keeps small gradients in fp16's range (Micikevicius et al. 2018, section 3.2; updated
// as in torch.amp.GradScaler).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "core/value.h"

namespace tessera::train {

class LossScale {
 public:
  // `on`: the run computes in fp16; otherwise the scale stays 1.
  explicit LossScale(bool on) : on_(on), scale_(on ? kFirst : 1) {}

  bool on() const { return on_; }
  double scale() const { return scale_; }
  // Divides the gradients by the scale, exactly, since it is a power of two.
  void unscale(const std::vector<torch::Tensor>& parameters) const;
  // Updates the scale after a step; `finite` must be equal in all processes. Doubles it after kGrowthSteps
  // finite steps, halves it after a non-finite one. Returns false if it cannot become smaller, which means
  // that the loss itself is not finite.
  bool update(bool finite);

  // For the checkpoint.
  Value state() const;
  void load(const Value& state, const std::string& where);

 private:
  static constexpr double kFirst = 65536, kMost = 16777216;
  static constexpr int64_t kGrowthSteps = 2000;

  bool on_;
  double scale_;
  int64_t finite_steps_ = 0;  // since the last change of scale
};

}  // namespace tessera::train
