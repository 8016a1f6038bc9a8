#include "models/base/input_channels.h"

#include "core/error.h"

namespace tessera::models {

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
