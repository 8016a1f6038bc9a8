// Tensors as pictures for reports.
#pragma once

#include "ops/torch.h"

#include "data/transform.h"
#include "io/image.h"

namespace tessera::tasks {

// [3, height, width] as it entered the model, with the mean and deviation of `preprocess` undone, as bytes.
Image picture_of(const torch::Tensor& image, const data::Preprocess& preprocess);

}  // namespace tessera::tasks
