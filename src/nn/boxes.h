// Differentiable boxes as tensors: corners [..., 4] = left, top, right, bottom; or centres = x, y, width, height.
#pragma once

#include "ops/torch.h"

namespace tessera::nn {

torch::Tensor corners_of_centres(const torch::Tensor& boxes);
torch::Tensor centres_of_corners(const torch::Tensor& boxes);

// Returns the area of corners, [...].
torch::Tensor box_area(const torch::Tensor& corners);

// For every box of a [n, 4] with every box of b [m, 4], corners: [n, m]. Intersection over union; or
// generalised (Rezatofighi et al. 2019, eq. 2 of their algorithm): minus the share of the smallest box around
// both that neither covers.
torch::Tensor pairwise_iou(const torch::Tensor& a, const torch::Tensor& b);
torch::Tensor pairwise_generalised_iou(const torch::Tensor& a, const torch::Tensor& b);

// 1 - the overlap of box i of a with box i of b, corners [n, 4]: [n]. Generalised: as above. Distance (Zheng
// et al. 2020): with the distance of the centres over the diagonal around both. Complete: also with the
// aspect ratios, their weight without gradient. As in torchvision, with 1e-7 added to divisors.
enum class BoxLoss { generalised, distance, complete };
torch::Tensor box_loss(const torch::Tensor& a, const torch::Tensor& b, BoxLoss kind);

}  // namespace tessera::nn
