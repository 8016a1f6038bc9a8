// Visual instruction tuning (Liu et al. 2023, LLaVA): a language model answers questions about images.
//
//   H = projector(features of the image tower after an inner block)
//   loss = - sum over the tokens of answers of log p(token | H in the place of <image>, all tokens before it)
//
// The task covers both stages of LLaVA. The first freezes all except the projector (train.freeze =
// ["blocks.*", …, "language_model.*"]), the second only the tower. With LoRA the language model's own weights
// stay fixed.
#pragma once

#include "models/language/llava.h"
#include "tasks/language/answering.h"

namespace tessera::tasks {

struct InstructConfig : AnsweringConfig {
  models::LlavaConfig images;

  template <class V>
  void visit(V& v) {
    visit_answering(v);
    v("images", images, "the projector's input from an image");
  }
};

TaskKind instruct_kind();

}  // namespace tessera::tasks
