// The model named in the metadata of our files.
#pragma once

#include <optional>
#include <string>

#include "io/weights/safetensors.h"
#include "models/base/model.h"

namespace tessera::train {

// Returns nothing for files of other programs. Throws Error, prefixed with `file`, if the entry is invalid.
std::optional<models::ModelSpec> stored_model(const Metadata& metadata, const std::string& file);

}  // namespace tessera::train
