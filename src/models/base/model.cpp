#include "models/base/model.h"

#include "core/error.h"

namespace tessera::models {

void Backbone::initialise(uint64_t seed) {
  nn::initialise(*this, seed, [this](const auto& name, const auto& parameter, const nn::Filler& fill) {
    first_values(name, parameter, fill);
  });
}

void Backbone::check_condition(const Context& context, int64_t batch) const {
  const torch::Tensor& condition = context.condition;
  if (!condition.defined()) return;
  check(condition_width() > 0, "a condition ", condition.sizes(),
        " was given to a model with blocks that take none");
  check(condition.dim() == 2 && condition.size(0) == batch && condition.size(1) == condition_width(),
        "the condition is ", condition.sizes(), ", must be [", batch, ", ", condition_width(), "]");
}

void Backbone::reserve_heads() {
  for (const std::string& name : head_names())
    register_module(name.substr(0, name.find('.')), std::make_shared<torch::nn::Module>());
}

int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

}  // namespace tessera::models
