// CoCa (Yu et al. 2022): two contrastive towers, and a decoder that writes the caption; models/pairs/coca.h
// has the model. A step minimises
//
//   contrast_weight CLIP(p_0, c) + caption_weight mean over tokens of -log p(t_{i+1} | t_1 … t_i, image)       (eq. 4)
#pragma once

#include "models/pairs/text_tower.h"
#include "tasks/base/paired_findings.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

struct CocaTaskConfig {
  int64_t embed_dim = 512;
  std::string tokenizer = "bytes";
  int64_t vocab_size = 0;
  int64_t context_length = 76, text_dim = 512, text_depth = 12, text_heads = 8, text_hidden = 0;
  models::TextMlp text_mlp = models::TextMlp::gelu;
  int64_t decoder_depth = 12, decoder_heads = 8, queries = 256, pooler_heads = 8;
  double contrast_weight = 1, caption_weight = 2, temperature = 0.07;
  int64_t chunk = 128, longest = 0;
  std::vector<std::string> templates = {"{}"};
  TrainCaptions train_captions = TrainCaptions::drawn;
  EvalCaptions eval_captions = EvalCaptions::all;

  template <class V>
  void visit(V& v) {
    v("embed_dim", embed_dim, between(1, 65536), "width of the space, and of the decoder's image tokens");
    v("tokenizer", tokenizer,
      "file of a tokeniser (tokenizer.json, vocab.json, tokenizer.model, CLIP's merges), bytes, or learned: "
      "from the training captions");
    v("vocab_size", vocab_size, between(0, 1 << 24),
      "rows of the token embedding, 0 = the tokeniser's number of ids");
    v("context_length", context_length, between(3, 65536), "tokens of a caption, with start and end");
    v("text_dim", text_dim, between(1, 65536), "width of the text tower and the decoder");
    v("text_depth", text_depth, between(1, 1000), "blocks of the text tower");
    v("text_heads", text_heads, between(1, 1024), "its attention heads");
    v("text_hidden", text_hidden, between(0, 1 << 22), "width inside the MLPs of both, 0 = 4 text_dim");
    v("text_mlp", text_mlp, choice<models::TextMlp>(), "their activation");
    v("decoder_depth", decoder_depth, between(1, 1000),
      "blocks of the decoder, each followed by attention to the image");
    v("decoder_heads", decoder_heads, between(1, 1024), "its attention heads");
    v("queries", queries, between(2, 65536),
      "queries of the image's tokens: one for its vector, the others for the decoder");
    v("pooler_heads", pooler_heads, between(1, 1024), "attention heads of these queries");
    v("contrast_weight", contrast_weight, between(0, 1000), "factor of the contrastive loss");
    v("caption_weight", caption_weight, between(0, 1000), "factor of the loss of captions");
    v("temperature", temperature, above_to(0, 100), "first value of exp(-logit_scale)");
    v("chunk", chunk, between(1, 1 << 20), "rows of pairs computed at a time");
    v("longest", longest, between(0, 65536), "tokens of captions in validation, 0 = context_length");
    v("templates", templates,
      "zero-shot classes in validation: texts with {} for the name; \"imagenet\" = OpenAI's 80");
    v("train_captions", train_captions, choice<TrainCaptions>(),
      "which of several captions: a random one, or the first");
    v("eval_captions", eval_captions, choice<EvalCaptions>(), "reference captions of a validation image");
  }
};

TaskKind coca_kind();

}  // namespace tessera::tasks
