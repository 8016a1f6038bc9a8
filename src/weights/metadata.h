// The model that a file of ours names in its metadata.
#pragma once

#include <optional>
#include <string>

#include "io/weights/safetensors.h"
#include "models/base/model.h"

namespace tessera::train {

// Null for files of other programs. Throws Error, with `file` in front, if the entry cannot be read.
std::optional<models::ModelSpec> stored_model(const Metadata& metadata, const std::string& file);

}  // namespace tessera::train
