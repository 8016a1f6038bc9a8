// Pictures of a model's input.
#pragma once

#include "data/loading/loader.h"
#include "data/transforms/transform.h"
#include "io/images/image.h"

namespace tessera::train {

// Returns the first pictures of a batch (at most `count`), augmented and mixed, in rows of eight.
// `preprocess` is their normalisation.
Image picture_sheet(const data::Batch& batch, const data::Preprocess& preprocess, int64_t count = 16);

}  // namespace tessera::train
