// Flamingo (Alayrac et al. 2022): a frozen language model reads images through gated cross-attention in front of every
// n-th of its blocks; a resampler makes a few vectors of each image (models/language/flamingo.h has the equations).
//
//   loss = - sum over the tokens of answers of log p(token | the image before it, all tokens before it)
//
// Interleaved documents (data/sources/interleaved.h) are learned as well as conversations: `length` tokens at a time.
//
// Tower and language model are frozen by train.freeze; with all gates at 0 the language model is itself, to the bit.
#pragma once

#include "tasks/language/answering.h"

namespace tessera::tasks {

struct FlamingoTaskConfig : AnsweringConfig {
  int64_t every = 4, latents = 64, resampler_depth = 6, resampler_heads = 8, cross_heads = 8, head_dim = 64,
          mlp_ratio = 4;
  FlamingoTaskConfig() { document_images = 5; }

  template <class V>
  void visit(V& v) {
    visit_answering(v);
    v("every", every, between(1, 1000), "a gated layer in front of every n-th block");
    v("latents", latents, between(1, 4096), "vectors of an image behind the resampler");
    v("resampler_depth", resampler_depth, models::kDepth, "layers of the resampler");
    v("resampler_heads", resampler_heads, models::kHeads, "attention heads of the resampler");
    v("cross_heads", cross_heads, models::kHeads, "attention heads of the gated layers");
    v("head_dim", head_dim, between(1, 4096), "channels of a head of either");
    v("mlp_ratio", mlp_ratio, between(1, 64),
      "hidden width of either's feed-forward networks over its width");
    v("document_images", document_images, between(1, 1024),
      "images of an interleaved document that are read at a time");
  }
};

TaskKind flamingo_kind();

}  // namespace tessera::tasks
