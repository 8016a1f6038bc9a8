// Boxes as tensors, with gradients: corners [..., 4] = left, top, right, bottom; or centres = x, y, width, height.
#pragma once

#include "ops/torch.h"

namespace tessera::nn {

torch::Tensor corners_of_centres(const torch::Tensor& boxes);
torch::Tensor centres_of_corners(const torch::Tensor& boxes);

// The area of corners, [...].
torch::Tensor box_area(const torch::Tensor& corners);

// Of every box of a [n, 4] with every one of b [m, 4], corners: [n, m]. Intersection over union; and generalised
// (Rezatofighi et al. 2019, eq. 2 of their algorithm): less the share of the smallest box around both that
// neither covers.
torch::Tensor pairwise_iou(const torch::Tensor& a, const torch::Tensor& b);
torch::Tensor pairwise_generalised_iou(const torch::Tensor& a, const torch::Tensor& b);

// 1 - the agreement of box i of a with box i of b, corners [n, 4]: [n]. generalised as above; distance (Zheng et
// al. 2020): with the distance of the centres over the diagonal around both; complete: with the aspect ratios,
// whose weight has no gradient. As torchvision computes them, 1e-7 added to divisors.
enum class BoxLoss { generalised, distance, complete };
torch::Tensor box_loss(const torch::Tensor& a, const torch::Tensor& b, BoxLoss kind);

}  // namespace tessera::nn
