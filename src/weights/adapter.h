// LoRA adapters in the form of the library PEFT: a folder with adapter_config.json and adapter_model.safetensors, whose
// tensors are called base_model.model.LAYER.lora_A.weight and lora_B.weight, with DoRA lora_magnitude_vector too. Biases
// and whole modules that were trained beside them (modules_to_save) stand under their own names.
#pragma once

#include <string>

#include "models/language/language_model.h"

namespace tessera::train {

// Adapts the model as the folder says. With `merged` the changes are added to the weights instead of computed beside
// them; tensors that the adapter has in place of the model's own replace these. Returns how many layers. Throws Error: no such file, an adapter of another kind than LoRA, a layer that the model
// does not have (with the nearest name), tensors of another shape, missing or left over.
int64_t read_adapter(models::LanguageModel& model, const std::string& folder, bool merged);

// Writes the adapted layers of a model. A usage error where none is adapted. `base` is said to be the model they adapt.
void write_adapter(const models::LanguageModel& model, const models::LoraConfig& config,
                   const std::string& base, const std::string& folder);

}  // namespace tessera::train
