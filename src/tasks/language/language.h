// Language modelling on text (Radford et al. 2019, GPT-2): a decoder predicts each token from its
// predecessors.
//
//   loss = - sum over tokens of log p(token | all tokens before it in its window)
//
// Texts are packed into one sequence of tokens, which is cut into windows of equal length; seed and epoch
// determine their order.
#pragma once

#include <string>

#include "models/language/language_model.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

struct LanguageTaskConfig {
  std::string tokenizer = "bytes", language_weights;
  int64_t length = 256;
  models::LanguageConfig language{.vocabulary = 1, .dim = 256, .depth = 6, .heads = 4, .context = 512};

  template <class V>
  void visit(V& v) {
    v("tokenizer", tokenizer, "tokenizer.json or another form, or bytes; it is stored in the weights");
    v("length", length, between(2, 1 << 20), "tokens of a window, each predicted from those before it");
    v("language", language, "the language model; the tokeniser sets its vocabulary");
    v("language_weights", language_weights,
      "its first weights: a run of this task, or a folder of a published model; empty: drawn");
  }
};

TaskKind language_kind();

}  // namespace tessera::tasks
