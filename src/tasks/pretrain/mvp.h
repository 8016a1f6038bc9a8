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
#include "tasks/pretrain/masked_patches.h"

namespace tessera::tasks {

struct MvpConfig {
  std::string teacher;
  int64_t width = 768;
  MaskedRectangles::Settings masks;

  template <class V>
  void visit(V& v) {
    v("teacher", teacher, "weights with an image tower, such as those of task clip");
    v("width", width, between(1, 1 << 16), "channels of its features");
    masks.visit(v);
  }
};

// Returns the sum over masked patches of 1 - cosine, [batch]: predicted [masked patches, width] in the order of mask
// [batch, patches], 1 = masked; targets [batch, patches, width].
torch::Tensor mvp_losses(const torch::Tensor& predicted, const torch::Tensor& targets,
                         const torch::Tensor& mask);

TaskKind mvp_kind();

}  // namespace tessera::tasks
