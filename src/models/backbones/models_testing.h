// Shared parts of the families' tests.
#pragma once

#include <memory>

#include "models/heads/class_head.h"

namespace tessera::models {

// Returns the model in double and evaluation mode, every parameter well away from zero. Gates, biases and
// heads start at zero, which would hide the effects under test.
inline std::shared_ptr<Classifier> lively(const ModelSpec& spec, double amount) {
  const auto model = build_classifier(spec, 1);
  model->backbone->to(torch::kFloat64);
  model->backbone->eval();
  const torch::NoGradGuard no_grad;
  torch::manual_seed(2);
  for (torch::Tensor& parameter : model->backbone->parameters())
    parameter.add_(torch::randn_like(parameter), amount);
  return model;
}

}  // namespace tessera::models
