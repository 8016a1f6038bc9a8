// BEiT (Bao et al. 2022, "BEiT: BERT pre-training of image transformers"): mask tokens in place of patches, and a
// linear head that predicts the token of each masked patch.
//
//   rectangles of patches are masked until a share mask_ratio is
//   scores = W norm(map) + b for each masked patch
//   loss = mean over masked patches of -log softmax(scores)[token]
// Tokens are those of task dvae's weights or of DALL-E's encoder, for images resized so that a token covers a patch.
//
// A sample is an image. The head's parameters have the names of the published files.
#pragma once

#include <string>

#include "tasks/base/registry.h"
#include "tasks/pretrain/masked_patches.h"

namespace tessera::tasks {

struct BeitConfig {
  std::string tokeniser = {};
  int64_t codes = 8192;
  MaskedRectangles::Settings masks;

  template <class V>
  void visit(V& v) {
    v("tokeniser", tokeniser, "weights of task dvae, or of DALL-E's encoder");
    v("codes", codes, between(2, 1 << 20), "number of codes of that tokeniser");
    masks.visit(v);
  }
};

// Returns the sum over masked patches of the cross entropy, [batch]. `scores` [masked patches, codes] in the order of
// mask [batch, patches], 1 = masked; `tokens` int64 [batch, patches].
torch::Tensor beit_losses(const torch::Tensor& scores, const torch::Tensor& tokens,
                          const torch::Tensor& mask);

TaskKind beit_kind();

}  // namespace tessera::tasks
