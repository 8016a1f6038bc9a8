// What a model is shown, for people.
#pragma once

#include "data/loading/loader.h"
#include "data/transforms/transform.h"
#include "io/images/image.h"

namespace tessera::train {

// The first pictures of a batch (at most `count`), augmented and mixed as they are, side by side in rows of
// eight. `preprocess` says how they were normalised.
Image picture_sheet(const data::Batch& batch, const data::Preprocess& preprocess, int64_t count = 16);

}  // namespace tessera::train
