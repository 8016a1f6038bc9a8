// The family "none": what [model] names where a task reads no images. It has no weights, and every image is an error.
#pragma once

#include "models/base/model.h"

namespace tessera::models {

inline constexpr const char* kNoBackbone = "none";

// The one family of this kind, beside families().
const std::vector<Family>& imageless_families();

}  // namespace tessera::models
