// The factor that keeps small gradients in fp16's range (Micikevicius et al. 2018, section 3.2; changed as
// torch.amp.GradScaler changes it).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "core/value.h"

namespace tessera::train {

class LossScale {
 public:
  // `on`: whether the run computes in fp16; else the scale is 1 and stays.
  explicit LossScale(bool on) : on_(on), scale_(on ? kFirst : 1) {}

  bool on() const { return on_; }
  double scale() const { return scale_; }
  // Takes the scale out of the gradients; powers of two lose nothing.
  void unscale(const std::vector<torch::Tensor>& parameters) const;
  // What the step found, the same in every process: after kGrowthSteps finite ones the scale doubles, after one that
  // is not it halves. False where it cannot become smaller: then the loss is to blame.
  bool update(bool finite);

  // For the checkpoint.
  Value state() const;
  void load(const Value& state, const std::string& where);

 private:
  static constexpr double kFirst = 65536, kMost = 16777216;
  static constexpr int64_t kGrowthSteps = 2000;

  bool on_;
  double scale_;
  int64_t finite_steps_ = 0;  // since the scale changed
};

}  // namespace tessera::train
