#include "tasks/dense/mask_losses.h"

namespace tessera::tasks {

using torch::Tensor;

Tensor sigmoid_focal_loss(const Tensor& logits, const Tensor& targets, double alpha, double gamma) {
  const Tensor p = logits.sigmoid();
  const Tensor cross_entropy =
      torch::binary_cross_entropy_with_logits(logits, targets, {}, {}, at::Reduction::None);
  const Tensor right = p * targets + (1 - p) * (1 - targets);
  const Tensor loss = cross_entropy * (1 - right).pow(gamma);
  return alpha < 0 ? loss : (alpha * targets + (1 - alpha) * (1 - targets)) * loss;
}

Tensor dice_loss(const Tensor& logits, const Tensor& targets) {
  const Tensor p = logits.sigmoid().flatten(1), t = targets.flatten(1);
  return 1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1);
}

}  // namespace tessera::tasks
