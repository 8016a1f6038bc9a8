// Pictures for reports, from tensors and from samples of a set.
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

// Converts a model input [3, height, width] to bytes, undoing the mean and deviation of `preprocess`.
Image picture_of(const torch::Tensor& image, const data::Preprocess& preprocess);

// Returns the image of a sample, shrunk.
Image thumbnail_of(const data::Source& source, int64_t index);

// Returns 24 pictures of random samples, the same in every run with this seed. `make` returns the picture of
// one; samples for which it throws an Error are skipped.
std::vector<report::Picture> drawn_pictures(int64_t samples, uint64_t seed,
                                            const std::function<report::Picture(int64_t sample)>& make);

}  // namespace tessera::tasks
