// The config.json that model hubs keep beside weights, in timm's form: which model it is, how its images are
// prepared, what its classes are called.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/value.h"

namespace tessera::train {

struct HubConfig {
  std::string model;                     // "vit_base_patch16_224.augreg_in21k"
  Value preprocess;                      // keys of [preprocess]
  std::vector<std::string> class_names;  // empty where it does not say
};

// Of weights under a hub's names (model.safetensors, its index, pytorch_model.bin) with a config.json beside
// them that names an architecture. Nothing for other files; a config that is no JSON is an error.
std::optional<HubConfig> read_hub_config(const std::string& weights_file);

}  // namespace tessera::train
