// What DETR and the losses of its kind are compared by.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/parity/case.h"

namespace tessera::parity {

// The tolerances that a golden names.
struct Allowed {
  double relative = 1e-4, absolute = 1e-5, relative_gradient = 1e-3;
  explicit Allowed(const Golden& golden) {
    const nlohmann::json given = golden.meta.value("tolerance", nlohmann::json::object());
    relative = given.value("rtol", relative), absolute = given.value("atol", absolute);
    relative_gradient = given.value("grad_rtol", relative);
    for (const nlohmann::json& name : golden.meta.value("zero_grad_params", nlohmann::json::array()))
      zero.push_back(name);
  }
  void output(Comparison& comparison, const std::string& what, const torch::Tensor& got,
              const torch::Tensor& want) const {
    if (want.is_floating_point())
      comparison.close(what, got.reshape(want.sizes()), want, relative, absolute);
    else
      comparison.equal(what, got, want);
  }
  void gradient(Comparison& comparison, const std::string& what, const torch::Tensor& got,
                const torch::Tensor& want) const {
    // A gradient that is zero but for rounding is compared with what rounding makes of the others.
    const bool nothing =
        std::any_of(zero.begin(), zero.end(), [&](const std::string& name) { return what.ends_with(name); });
    const double largest = want.numel() > 0 ? want.abs().max().item<double>() : 0;
    comparison.close(what, got, want, relative_gradient, nothing ? 1e-4 : 1e-4 * largest + 1e-6);
  }
  std::vector<std::string> zero;
};

}  // namespace tessera::parity
