// Frozen (Tsimpoukelli et al. 2021, "Multimodal few-shot learning with frozen language models"): a tower
// learns to encode an image as a few tokens for a frozen language model.
//
//   prefix = W v(image), as `tokens` embeddings     v: the tower's read-out
//   loss   = - sum over the tokens of answers of log p(token | prefix in the place of <image>, all tokens before it)
//
// train.freeze = ["language_model.*"] freezes the language model; gradients pass through it.
#pragma once

#include "tasks/language/answering.h"

namespace tessera::tasks {

struct FrozenTaskConfig : AnsweringConfig {
  int64_t tokens = 2;  // section 3.1: two work best

  template <class V>
  void visit(V& v) {
    visit_answering(v);
    v("tokens", tokens, between(1, 1024), "tokens that represent an image");
  }
};

TaskKind frozen_kind();

}  // namespace tessera::tasks
