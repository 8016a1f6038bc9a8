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

constexpr int64_t kColours = 3;

int64_t input_channels(const Value& settings) {
  const Value* channels = settings.find("in_channels");
  return channels ? channels->as_int() : kColours;
}

void require_colours(const Value& settings, std::string_view who) {
  if (const int64_t channels = input_channels(settings); channels != kColours)
    fail_usage(who, " predicts the pixels of colour images: model.in_channels = ", channels, ", must be 3");
}

torch::Tensor fit_input_channels(const torch::Tensor& stored, torch::IntArrayRef wanted) {
  if (stored.dim() != 4 || wanted.size() != 4 || stored.size(1) != kColours || wanted[1] == kColours)
    return {};
  if (stored.size(0) != wanted[0] || stored.size(2) != wanted[2] || stored.size(3) != wanted[3]) return {};
  const int64_t channels = wanted[1];
  if (channels == 1) return stored.sum(1, /*keepdim=*/true);
  const torch::Tensor repeated = stored.repeat({1, (channels + kColours - 1) / kColours, 1, 1});
  return repeated.slice(1, 0, channels) * (static_cast<double>(kColours) / static_cast<double>(channels));
}

}  // namespace tessera::models
