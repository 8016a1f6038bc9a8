// The config.json that model hubs store next to weights, in timm's format: the model, its preprocessing and
// its class names; and the model in the metadata of our own files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/value.h"
#include "io/weights/safetensors.h"
#include "models/base/model.h"

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

// Returns the model in the metadata of our files; nothing for files of other programs. Throws Error, prefixed with `file`, if the entry is invalid.
std::optional<models::ModelSpec> stored_model(const Metadata& metadata, const std::string& file);

}  // namespace tessera::train
