// The norm of ops/norm.h by a GPU's kernels.
#pragma once

#include "ops/norm.h"

namespace tessera::ops {

// Returns the norm, with gradients if they are recorded; undefined if no kernel takes it: off the GPU, for weights of
// each sample or in other types than float32, and for widths that are no multiples of 8.
torch::Tensor norm_on_gpu(const torch::Tensor& x, const NormParameters& parameters);

}  // namespace tessera::ops
