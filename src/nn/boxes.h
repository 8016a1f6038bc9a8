// Differentiable boxes as tensors: corners [..., 4] = left, top, right, bottom; or centres = x, y, width, height.
#pragma once

#include "ops/torch.h"

namespace tessera::nn {

torch::Tensor corners_of_centres(const torch::Tensor& boxes);
torch::Tensor centres_of_corners(const torch::Tensor& boxes);

// Returns the area of corners, [...].
torch::Tensor box_area(const torch::Tensor& corners);

// Returns for every box of a [n, 4] with every box of b [m, 4], corners, the generalised intersection over union
// (Rezatofighi et al. 2019, eq. 2 of their algorithm), [n, m]: minus the uncovered share of the smallest box
// around both.
torch::Tensor pairwise_generalised_iou(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace tessera::nn
