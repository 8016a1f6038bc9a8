// The config.json that timm stores next to weights: the model with the arguments of its constructor, the
// preprocessing of images, and the class names; and the model
// in the metadata of our own files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/value.h"
#include "io/weights/safetensors.h"
#include "models/base/model.h"
#include "weights/published_folder.h"

namespace tessera::train {

struct HubConfig {
  std::string model;                     // "vit_base_patch16_224.augreg_in21k"
  Value settings;                        // keys of [model] that differ from the size's
  Value preprocess;                      // keys of [preprocess], with the size
  std::vector<std::string> class_names;  // may be empty
  std::string test_size;                 // "--size 288 --crop 1", if a larger size was tested too
};

// Reads the config.json next to weights with a published name. Nothing for other files, or if it names no
// architecture. Throws Error if it is not JSON, and usage errors that name a setting without an equivalent.
std::optional<HubConfig> read_hub_config(PublishedFolder& folder);

// Returns the model in the metadata of our files; nothing for files of other programs. Throws Error, prefixed with `file`, if the entry is invalid.
std::optional<models::ModelSpec> stored_model(const Metadata& metadata, const std::string& file);

}  // namespace tessera::train
