// Pictures for reports: tensors, and samples of a set.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <vector>

#include "data/base/source.h"
#include "data/transforms/transform.h"
#include "io/images/image.h"
#include "report/html.h"

namespace tessera::tasks {

// [3, height, width] as it entered the model, with the mean and deviation of `preprocess` undone, as bytes.
Image picture_of(const torch::Tensor& image, const data::Preprocess& preprocess);

// The image of a sample, small.
Image thumbnail_of(const data::Source& source, int64_t index);

// Two dozen of so many samples, the same ones in every run with this seed. `make` gives the picture of one; those of which
// it throws an Error are left out.
std::vector<report::Picture> drawn_pictures(int64_t samples, uint64_t seed,
                                            const std::function<report::Picture(int64_t sample)>& make);

}  // namespace tessera::tasks
