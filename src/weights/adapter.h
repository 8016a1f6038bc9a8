// LoRA adapters in the format of the library PEFT: a folder with adapter_config.json and
// adapter_model.safetensors. Tensors are named base_model.model.LAYER.lora_A.weight and lora_B.weight; DoRA
// adds lora_magnitude_vector. Trained biases and whole modules (modules_to_save) keep their own names.
#pragma once

#include <string>

#include "models/language/language_model.h"

namespace tessera::train {

// Applies the adapter in `folder` to the model and returns the number of adapted layers. `merged` adds the
// changes to the weights instead of computing them separately. Saved modules and biases replace the model's
// own. Throws Error for a missing file, an adapter other than LoRA or a layer that the model lacks (with the
// nearest name). Throws Error for tensors that are missing, left over or of another shape.
int64_t read_adapter(models::LanguageModel& model, const std::string& folder, bool merged);

// Writes the adapted layers of a model, with `base` as the name of the base model. Throws a usage error if no
// layer is adapted.
void write_adapter(const models::LanguageModel& model, const models::LoraConfig& config,
                   const std::string& base, const std::string& folder);

}  // namespace tessera::train
