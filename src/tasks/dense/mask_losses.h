// Losses of masks and of independent binary classes.
#pragma once

#include "ops/torch.h"

namespace tessera::tasks {

// Focal loss (Lin et al. 2017, eq. 5) of each logit, same shape: -alpha_t (1 - p_t)^gamma log p_t. alpha
// weighs ones, 1 - alpha zeros; if negative, no weights. Targets in [0, 1].
torch::Tensor sigmoid_focal_loss(const torch::Tensor& logits, const torch::Tensor& targets, double alpha,
                                 double gamma);

// Dice loss (Milletari et al. 2016) of each row, [rows]: 1 - (2 sum p t + 1) / (sum p + sum t + 1), with p
// the sigmoid of the logits [rows, ...].
torch::Tensor dice_loss(const torch::Tensor& logits, const torch::Tensor& targets);

}  // namespace tessera::tasks
