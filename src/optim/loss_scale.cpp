#include "optim/loss_scale.h"

#include <ATen/ops/_foreach_mul.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace tessera::train {

void LossScale::unscale(const std::vector<torch::Tensor>& parameters) const {
  if (scale_ == 1) return;
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  if (!gradients.empty()) at::_foreach_mul_(gradients, 1 / scale_);
}

bool LossScale::update(bool finite) {
  if (!on_) return false;
  if (!finite) {
    finite_steps_ = 0;
    if (scale_ <= 1) return false;
    scale_ /= 2;
    return true;
  }
  if (++finite_steps_ < kGrowthSteps) return true;
  finite_steps_ = 0;
  scale_ = std::min(2 * scale_, kMost);
  return true;
}

Value LossScale::state() const {
  Value out;
  out.set("scale", scale_);
  out.set("finite_steps", finite_steps_);
  return out;
}

void LossScale::load(const Value& state, const std::string& where) {
  const Value *scale = state.find("scale"), *steps = state.find("finite_steps");
  const bool usable = scale && scale->is_number() && steps && steps->is_int();
  if (!usable || !(scale->as_double() >= 1 && scale->as_double() <= kMost) ||
      std::exp2(std::round(std::log2(scale->as_double()))) != scale->as_double() || steps->as_int() < 0 ||
      steps->as_int() >= kGrowthSteps)
    fail(where, ": no usable 'loss_scale', must be a power of two from 1 to ", kMost,
         " and a number of steps below ", kGrowthSteps);
  scale_ = scale->as_double();
  finite_steps_ = steps->as_int();
}

}  // namespace tessera::train
