// The config.json that model hubs store next to weights, in timm's format: the model, its preprocessing and
// its class names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/value.h"

namespace tessera::train {

struct HubConfig {
  std::string model;                     // "vit_base_patch16_224.augreg_in21k"
  Value preprocess;                      // keys of [preprocess]
  std::vector<std::string> class_names;  // may be empty
};

// Reads the config.json next to weights with a hub's file name (model.safetensors, its index,
// pytorch_model.bin). Nothing for other files, or if it names no architecture. Throws Error if it is not
// JSON.
std::optional<HubConfig> read_hub_config(const std::string& weights_file);

}  // namespace tessera::train
