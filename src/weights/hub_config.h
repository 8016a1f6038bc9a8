// The configurations next to published weights of images: timm's and transformers' config.json (model, class names),
// transformers' preprocessor_config.json, and OpenCLIP's open_clip_config.json; and the model in the metadata of
// our own files.
#pragma once

#include <cstdint>
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
  std::string prepared_by;               // file of the preprocessing; "" = as published for the model
  bool multi_label = false;              // an image has any number of classes
};

// Reads the config.json next to weights with a published name. Nothing for other files, or if it names no
// architecture. Throws Error if it is not JSON, and usage errors that name a setting without an equivalent.
std::optional<HubConfig> read_hub_config(PublishedFolder& folder);

// As read_hub_config, for a config.json of transformers' image classifiers and their backbones.
std::optional<HubConfig> read_transformers_config(PublishedFolder& folder);
// Returns the class of transformers in a config.json that read_transformers_config cannot read; "" without one.
std::string unread_class(PublishedFolder& folder);
// Returns the classifiers that it reads, comma-separated.
std::string readable_classes();

// Returns the licence that config.json or the head of README.md names; "" without one.
std::string published_license(PublishedFolder& folder);

// Returns the settings of `family` for arguments of timm's constructor (`model_args` in a config.json).
// Arguments that only training reads are left out. Throws a usage error that begins with `where` for any other
// argument without an equivalent, with its name and value.
Value settings_of_timm(const std::string& family, const Value& arguments, const std::string& where);

// Returns keys of [preprocess], with the size, from preprocessor_config.json or OpenCLIP's preprocess_cfg;
// nothing without such a file. `side`: the image size of the model, which OpenCLIP gives priority over its
// file; 0 = unknown. Throws a usage error that names a setting without an equivalent.
std::optional<Value> read_preprocess_config(PublishedFolder& folder, int64_t side);

// Returns the model in the metadata of our files; nothing for files of other programs. Throws Error, prefixed with `file`, if the entry is invalid.
std::optional<models::ModelSpec> stored_model(const Metadata& metadata, const std::string& file);

}  // namespace tessera::train
