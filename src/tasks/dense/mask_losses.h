// Losses of masks and of classes that are each a yes or no.
#pragma once

#include "ops/torch.h"

namespace tessera::tasks {

// Focal loss (Lin et al. 2017, eq. 5) of each logit, in its shape: -alpha_t (1 - p_t)^gamma log p_t. alpha is the
// weight of a 1, 1 - alpha that of a 0; negative: no weights. Targets in [0, 1].
torch::Tensor sigmoid_focal_loss(const torch::Tensor& logits, const torch::Tensor& targets, double alpha,
                                 double gamma);

// Dice loss (Milletari et al. 2016) of each row, [rows]: 1 - (2 sum p t + 1) / (sum p + sum t + 1), p the sigmoid of
// the logits [rows, ...].
torch::Tensor dice_loss(const torch::Tensor& logits, const torch::Tensor& targets);

}  // namespace tessera::tasks
