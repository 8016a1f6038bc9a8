// The preprocessing of images in files next to published weights: transformers' preprocessor_config.json, and
// preprocess_cfg of OpenCLIP's open_clip_config.json.
#pragma once

#include <cstdint>
#include <optional>

#include "core/value.h"
#include "weights/published_folder.h"

namespace tessera::train {

// Returns keys of [preprocess], with the size; nothing without such a file. `side`: the image size of the
// model, which OpenCLIP gives priority over its file; 0 = unknown. Throws a usage error that names a setting
// without an equivalent.
std::optional<Value> read_preprocess_config(PublishedFolder& folder, int64_t side);

}  // namespace tessera::train
