#include "cli/analyse/attention_taps.h"

#include <algorithm>

namespace tessera::cli {
namespace {

constexpr const char* kMixing = ".mixing";

bool is_mixing(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot != std::string::npos && name.compare(dot, std::string(kMixing).size(), kMixing) == 0;
}

}  // namespace

bool AttentionTaps::holds(const std::string& name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

AttentionTaps attention_taps(const AnalysedModel& model, const torch::Tensor& image) {
  const torch::NoGradGuard no_grad;
  // Collects taps in the order of the network. Names do not give this order, since a pair of Vision-LSTM has
  // two directions.
  AttentionTaps out, mixing{{}, true};
  model.tapped(image, [&](const std::string& name) {
    AttentionTaps& kind = is_mixing(name) ? mixing : out;
    if ((kind.implicit || name.ends_with(".attention")) && !kind.holds(name)) kind.names.push_back(name);
    return false;
  });
  if (out.names.empty()) out = std::move(mixing);
  return out;
}

std::string layer_name(const std::string& tap) {
  constexpr size_t kPrefix = 7;  // of "blocks."
  const size_t dot = tap.rfind('.');
  const bool direction = is_mixing(tap) && !tap.ends_with(kMixing);
  return "block " + tap.substr(kPrefix, direction ? std::string::npos : dot - kPrefix);
}

}  // namespace tessera::cli
