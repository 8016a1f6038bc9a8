// Language modelling on text (Radford et al. 2019, GPT-2): a decoder predicts each token from its
// predecessors.
//
//   loss = - sum over tokens of log p(token | all tokens before it in its window)
//
// With form = "seq2seq", an encoder and a decoder learn missing spans instead (spans.h).
//
// Texts are packed into one sequence of tokens, which is cut into windows of equal length; seed and epoch
// determine their order.
#pragma once

#include <array>
#include <string>

#include "models/language/language_model.h"
#include "models/language/seq2seq.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

enum class TextForm { decoder, seq2seq };

struct LanguageTaskConfig {
  TextForm form = TextForm::decoder;
  std::string tokenizer = "bytes", language_weights;
  int64_t length = 256;
  models::LanguageConfig language{.vocabulary = 1, .dim = 256, .depth = 6, .heads = 4, .context = 512};
  models::Seq2SeqConfig seq2seq{.kind = models::Seq2SeqKind::t5,
                                .vocabulary = 1,
                                .dim = 256,
                                .heads = 4,
                                .hidden = 1024,
                                .encoder_depth = 4,
                                .decoder_depth = 4,
                                .eps = 1e-6};
  double noise = 0.15, mean_span = 3;
  int64_t sentinels = 100;

  template <class V>
  void visit(V& v) {
    v("form", form, choice<TextForm>(),
      "a decoder predicts each token, or encoder and decoder (seq2seq) predict missing spans");
    v("tokenizer", tokenizer, "tokenizer.json or another form, or bytes; it is stored in the weights");
    v("length", length, between(2, 1 << 20), "tokens of a window");
    v("language", language, "the language model; the tokeniser sets its vocabulary");
    v("language_weights", language_weights,
      "its first weights: a run of this task, or a folder of a published model; empty: drawn");
    v("seq2seq", seq2seq, "the encoder and decoder; vocabulary 1 = the tokeniser's with sentinels");
    v("noise", noise, Range{.low = 0, .high = 1, .without_low = true, .without_high = true},
      "seq2seq: share of the tokens that is missing");
    v("mean_span", mean_span, at_least(1), "seq2seq: mean tokens of a missing span");
    v("sentinels", sentinels, between(1, 10000),
      "seq2seq: tokens <extra_id_0> … that replace spans; the tokeniser gets those that it lacks");
  }
};

TaskKind language_kind();

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::TextForm> {
  static constexpr std::array names = {"decoder", "seq2seq"};
};
