#include "nn/units.h"

#include "ops/inference.h"

namespace tessera::nn {
namespace {

thread_local UnitKeeper* keeper_of_this_thread = nullptr;

}  // namespace

UnitScope::UnitScope(UnitKeeper* keeper) : before_(keeper_of_this_thread) { keeper_of_this_thread = keeper; }
UnitScope::~UnitScope() { keeper_of_this_thread = before_; }
UnitKeeper* UnitScope::keeper() { return keeper_of_this_thread; }

torch::Tensor run_unit(const torch::Tensor& x, const Unit& unit) {
  UnitKeeper* const keeper = UnitScope::keeper();
  const bool gradients = torch::GradMode::is_enabled();
  if (!keeper && !(unit.recompute && gradients)) return unit.body(x);
  const std::vector<torch::Tensor> parameters = unit.parameters();
  if (unit.recompute && gradients) {
    std::vector<torch::Tensor> reads = parameters;
    reads.insert(reads.end(), unit.reads.begin(), unit.reads.end());
    if (!keeper) return checkpoint(unit.body, x, reads);
    const auto kept = [body = unit.body, parameters, keeper](const torch::Tensor& in) {
      if (recomputing()) {
        keeper->enter_backward(parameters);
        return body(in);
      }
      keeper->enter(parameters);
      const torch::Tensor y = body(in);
      keeper->leave(parameters);
      return y;
    };
    return checkpoint(kept, x, reads);
  }
  keeper->enter(parameters);
  ops::InferenceSettings settings = ops::inference_settings();
  settings.keep_packed = settings.keep_packed && gradients;  // copies would outlive the weights
  const ops::InferenceScope scope(settings);
  torch::Tensor y = unit.body(x);
  if (gradients && y.requires_grad())
    y.register_hook([parameters, keeper](const torch::Tensor&) { keeper->enter_backward(parameters); });
  keeper->leave(parameters);
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
