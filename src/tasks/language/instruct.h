// Visual instruction tuning (Liu et al. 2023, LLaVA): a language model answers questions about images.
//
//   H = projector(features of the image tower behind an inner block)
//   loss = - sum over the tokens of answers of log p(token | H in the place of <image>, all tokens before it)
//
// Both of LLaVA's stages are this task: the first freezes all but the projector (train.freeze = ["blocks.*", …,
// "language_model.*"]), the second the tower alone. With LoRA the language model's own weights are kept.
#pragma once

#include "models/language/llava.h"
#include "tasks/language/answering.h"

namespace tessera::tasks {

struct InstructConfig : AnsweringConfig {
  models::LlavaConfig images;

  template <class V>
  void visit(V& v) {
    visit_answering(v);
    v("images", images, "what the projector reads of an image");
  }
};

TaskKind instruct_kind();

}  // namespace tessera::tasks
