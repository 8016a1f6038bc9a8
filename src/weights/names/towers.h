// Rows of CLIP's image tower, which models of images and language hold too.
#pragma once

#include <string>

#include "weights/base/name_table.h"

namespace tessera::train {

// As transformers has it, and for reading as OpenCLIP has it.
NameRows image_tower_rows(const std::string& theirs, const std::string& ours);

}  // namespace tessera::train
