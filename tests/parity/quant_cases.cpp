// components/quant_lsq: quantisation with a learned step, values and gradients; components/quant_int8_linear:
// a linear layer with weights of 8 bits an output and inputs of 8 bits a token.
#include "core/error.h"
#include "ops/inference.h"
#include "ops/linear.h"
#include "ops/lsq.h"
#include "tests/parity/case.h"

namespace tessera::parity {
namespace {

using Json = nlohmann::json;

// One of the case's quantisers: x, step[, offset]; or a linear layer of two of them.
void check_quantiser(Comparison& comparison, const Golden& golden, const Json& wanted, double relative,
                     double absolute, torch::ScalarType dtype) {
  const std::string name = wanted.at("name"), prefix = name + "/";
  const auto range = ops::quantised_range(wanted.at("bits"), wanted.at("signed"));
  std::map<std::string, torch::Tensor> leaves;
  for (const std::string& input : golden.names(prefix + "input."))
    leaves[input] = golden.tensor(prefix + "input." + input, dtype).requires_grad_();
  torch::Tensor y;
  if (leaves.contains("weight"))
    y = torch::linear(ops::learned_step_quantise(leaves["x"], leaves["step_x"], range),
                      ops::learned_step_quantise(leaves["weight"], leaves["step_w"], range));
  else
    y = ops::learned_step_quantise(leaves["x"], leaves["step"], range, leaves["offset"]);
  (y * golden.tensor(prefix + "loss_weight", dtype)).sum().backward();
  const std::string label = dtype == torch::kFloat64 ? "float64 " : "float32 ";
  comparison.close(label + name + " y", y, golden.tensor(prefix + "output.y"), relative, absolute);
  for (const auto& [leaf, tensor] : leaves)
    if (tensor.defined())
      comparison.close(label + name + " gradient of " + leaf, tensor.grad(),
                       golden.tensor(prefix + "grad." + leaf), relative, absolute);
  if (golden.has(prefix + "output.init_step"))
    comparison.close(label + name + " first step",
                     ops::first_step(leaves["x"], range, wanted.value("per_channel", false)),
                     golden.tensor(prefix + "output.init_step"), relative, absolute);
}

}  // namespace

CaseResult check_learned_step(const Golden& golden) {
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const Json& wanted : golden.config().at("cases"))
      check_quantiser(comparison, golden, wanted, tolerance.value("rtol", 1e-5),
                      tolerance.value("atol", 1e-6), dtype);
  return comparison.result();
}

// The fused layer gives floats where there is a residual, here of zeros. One scale for all of W, and inputs
// with an offset, are not among what it does.
CaseResult check_int8_linear(const Golden& golden) {
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  const torch::NoGradGuard no_grad;
  const ops::InferenceScope int8({.fused = true, .gradients_follow = false, .int8 = true});
  ops::LinearCache cache;
  const torch::Tensor want = golden.tensor("output.y");
  const torch::Tensor y =
      ops::linear(golden.tensor("input.x"),
                  {.weight = golden.tensor("input.weight"), .bias = golden.tensor("input.bias")},
                  torch::zeros_like(want), cache);
  Comparison comparison;
  comparison.close("y", y, want, tolerance.value("rtol", 1e-5), tolerance.value("atol", 1e-5));
  return comparison.result();
}

}  // namespace tessera::parity
