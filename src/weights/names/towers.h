// Rows of CLIP's image tower, which vision-language models contain too.
#pragma once

#include <string>

#include "weights/base/name_table.h"

namespace tessera::train {

// Returns the rows for transformers' names, and for OpenCLIP's (only for reading).
NameRows image_tower_rows(const std::string& theirs, const std::string& ours);

}  // namespace tessera::train
