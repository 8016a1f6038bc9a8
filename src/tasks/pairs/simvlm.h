// SimVLM (Wang et al. 2022): next-token loss on captions with a bidirectional prefix (image and beginning of
// the caption); models/pairs/simvlm.h has the model. The prefix length is drawn for each sample and step
// (PrefixLM, section 3.1).
#pragma once

#include "tasks/base/paired_findings.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

enum class PrefixKind { drawn, none };

struct SimVlmTaskConfig {
  std::string tokenizer = "bytes";
  int64_t context_length = 64, text_dim = 512, text_depth = 8, decoder_depth = 8, text_heads = 8,
          text_hidden = 0;
  PrefixKind prefix = PrefixKind::drawn;
  int64_t longest = 0;
  TrainCaptions train_captions = TrainCaptions::drawn;
  EvalCaptions eval_captions = EvalCaptions::all;

  template <class V>
  void visit(V& v) {
    v("tokenizer", tokenizer,
      "file of a tokeniser (tokenizer.json, vocab.json, tokenizer.model, CLIP's merges), bytes, or learned: "
      "from the training captions");
    v("context_length", context_length, between(3, 65536), "tokens of a caption, with start and end");
    v("text_dim", text_dim, between(1, 65536), "width of the Transformer on image and text");
    v("text_depth", text_depth, between(1, 1000), "its blocks; those of the encoder if there is a decoder");
    v("decoder_depth", decoder_depth, between(0, 1000),
      "blocks of the decoder, 0 = decoder only: one stack for all");
    v("text_heads", text_heads, between(1, 1024), "attention heads");
    v("text_hidden", text_hidden, between(0, 1 << 22), "width inside the MLPs, 0 = 4 text_dim");
    v("prefix", prefix, choice<PrefixKind>(), "bidirectional tokens: a random number, or only the start");
    v("longest", longest, between(0, 65536), "tokens of captions in validation, 0 = context_length");
    v("train_captions", train_captions, choice<TrainCaptions>(),
      "which of several captions: a random one, or the first");
    v("eval_captions", eval_captions, choice<EvalCaptions>(), "reference captions of a validation image");
  }
};

TaskKind simvlm_kind();

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::PrefixKind> {
  static constexpr std::array names = {"drawn", "none"};
};
