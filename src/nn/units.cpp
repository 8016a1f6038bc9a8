#include "nn/units.h"

#include "ops/inference.h"

namespace tessera::nn {
namespace {

thread_local UnitRunner* runner_of_this_thread = nullptr;

std::vector<torch::Tensor> all_reads(const Unit& unit, std::vector<torch::Tensor> parameters) {
  parameters.insert(parameters.end(), unit.reads.begin(), unit.reads.end());
  return parameters;
}

}  // namespace

UnitScope::UnitScope(UnitRunner* runner) : before_(runner_of_this_thread) { runner_of_this_thread = runner; }
UnitScope::~UnitScope() { runner_of_this_thread = before_; }
UnitRunner* UnitScope::runner() { return runner_of_this_thread; }

torch::Tensor run_unit(const torch::Tensor& x, const Unit& unit) {
  UnitRunner* const runner = UnitScope::runner();
  return runner ? runner->run(x, unit) : run_unit_here(x, unit);
}

torch::Tensor run_unit_here(const torch::Tensor& x, const Unit& unit) {
  if (!unit.recompute || !torch::GradMode::is_enabled()) return unit.body(x);
  return checkpoint(unit.body, x, all_reads(unit, unit.parameters()));
}

torch::Tensor UnitKeeper::run(const torch::Tensor& x, const Unit& unit) {
  const bool gradients = torch::GradMode::is_enabled();
  const std::vector<torch::Tensor> parameters = unit.parameters();
  if (unit.recompute && gradients) {
    const auto kept = [body = unit.body, parameters, this](const torch::Tensor& in) {
      if (recomputing()) {
        enter_backward(parameters);
        return body(in);
      }
      enter(parameters);
      const torch::Tensor y = body(in);
      leave(parameters);
      return y;
    };
    return checkpoint(kept, x, all_reads(unit, parameters));
  }
  enter(parameters);
  ops::InferenceSettings settings = ops::inference_settings();
  settings.keep_packed = settings.keep_packed && gradients;  // copies would outlive the weights
  const ops::InferenceScope scope(settings);
  torch::Tensor y = unit.body(x);
  if (gradients && y.requires_grad())
    y.register_hook([parameters, this](const torch::Tensor&) { enter_backward(parameters); });
  leave(parameters);
  return y;
}

void set_checkpointing(torch::nn::Module& module, bool on) {
  for (const auto& each : module.modules())
    if (auto* const stack = dynamic_cast<Stack*>(each.get())) stack->set_checkpointing(on);
}

std::vector<std::vector<torch::Tensor>> units_of(torch::nn::Module& module) {
  std::vector<std::vector<torch::Tensor>> units;
  for (const auto& each : module.modules())
    if (const auto* const stack = dynamic_cast<const Stack*>(each.get()))
      for (auto& unit : stack->units()) units.push_back(std::move(unit));
  return units;
}

}  // namespace tessera::nn
