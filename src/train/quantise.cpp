#include "train/quantise.h"

#include "core/error.h"
#include "nn/linear.h"

namespace tessera::train {

int64_t quantise_blocks(models::Backbone& model, const QuantizationConfig& config) {
  for (const auto& [key, bits] :
       {std::pair("weights", config.weights), std::pair("activations", config.activations)})
    if (bits < 2 || bits > 16) fail_usage("quantization.", key, " = ", bits, ", must be 2 to 16 bits");
  int64_t layers = 0;
  for (const auto& module : model.named_modules()) {
    const std::string& name = module.key();
    if (name.find(".attn.") == std::string::npos && name.find(".mlp.") == std::string::npos) continue;
    auto* linear = dynamic_cast<nn::LinearImpl*>(module.value().get());
    if (!linear) continue;
    linear->quantise({.weights = config.weights, .activations = config.activations});
    ++layers;
  }
  if (layers == 0)
    fail_usage("[quantization] is for the attention and feed-forward layers of blocks; this model has none");
  return layers;
}

}  // namespace tessera::train
