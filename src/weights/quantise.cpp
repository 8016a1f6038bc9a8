#include "weights/quantise.h"

#include "core/error.h"
#include "nn/attention.h"
#include "nn/linear.h"

namespace tessera::train {

QuantisedBlocks quantise_blocks(models::Backbone& model, const QuantizationConfig& config) {
  for (const auto& [key, bits] :
       {std::pair("weights", config.weights), std::pair("activations", config.activations)})
    if (bits < 2 || bits > 16) fail_usage("quantization.", key, " = ", bits, ", must be 2 to 16 bits");
  QuantisedBlocks found;
  for (const auto& module : model.named_modules()) {
    const std::string& name = module.key();
    auto* attention = dynamic_cast<nn::AttentionImpl*>(module.value().get());
    if (attention && config.form == QuantizationForm::q_vit) {
      attention->quantise(config.activations);
      ++found.attention;
    }
    if (name.find(".attn.") == std::string::npos && name.find(".mlp.") == std::string::npos) continue;
    auto* linear = dynamic_cast<nn::LinearImpl*>(module.value().get());
    if (!linear) continue;
    linear->quantise({.weights = config.weights, .activations = config.activations});
    ++found.linear;
  }
  if (found.linear == 0)
    fail_usage("[quantization] is for the attention and feed-forward layers of blocks; this model has none");
  if (found.attention == 0 && config.form == QuantizationForm::q_vit)
    fail_usage(
        "quantization.form = \"q_vit\" is for attention among all tokens of a model (vit, illama, "
        "visionllama, darl); this one has none: use \"linear\"");
  return found;
}

}  // namespace tessera::train
