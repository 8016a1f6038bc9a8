// The family "none": the [model] of a task that reads no images. It has no weights, and every image is an
// error.
#pragma once

#include "models/base/model.h"

namespace tessera::models {

inline constexpr const char* kNoBackbone = "none";

// Returns the one family of this kind, which families() does not list.
const std::vector<Family>& imageless_families();

}  // namespace tessera::models
