// MVP (Wei et al. 2022, "MVP: Multimodality-guided visual pre-training"): mask tokens in place of patches, and a linear layer
// that predicts the features of a trained image tower, usually CLIP's.
//
//   loss = mean over masked patches of  1 - cos(W y_p, t_p)       t: the tower's last block on the whole image
//
// Masks are BEiT's rectangles. The tower gets the image in its own normalisation; its grid must be the model's.
#pragma once

#include <cstdint>
#include <string>

#include "tasks/base/registry.h"

namespace tessera::tasks {

struct MvpConfig {
  std::string teacher;
  int64_t width = 768, mask_least = 16;
  double mask_ratio = 0.4;

  template <class V>
  void visit(V& v) {
    v("teacher", teacher, "weights with an image tower, such as those of task clip");
    v("width", width, between(1, 1 << 16), "channels of its features");
    v("mask_ratio", mask_ratio, Range{.low = 0, .high = 1, .without_low = true, .without_high = true},
      "share of the patches that is masked");
    v("mask_least", mask_least, between(1, 1 << 20), "patches of a masked rectangle, at least");
  }
};

// Returns the sum over masked patches of 1 - cosine, [batch]; predicted and targets [batch, patches, width], mask 1 =
// masked.
torch::Tensor mvp_losses(const torch::Tensor& predicted, const torch::Tensor& targets,
                         const torch::Tensor& mask);

TaskKind mvp_kind();

}  // namespace tessera::tasks
