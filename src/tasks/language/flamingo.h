// Flamingo (Alayrac et al. 2022): a frozen language model reads images through gated cross-attention before
// every n-th of its blocks. A resampler compresses each image to a few vectors (equations:
// models/language/flamingo.h).
//
//   loss = - sum over the tokens of answers of log p(token | the image before it, all tokens before it)
//
// It trains on interleaved documents (data/sources/interleaved.h) as well as conversations: `length` tokens
// at a time.
//
// train.freeze freezes tower and language model; with all gates at 0 the language model's output is
// unchanged, bit by bit.
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
    v("every", every, between(1, 1000), "a gated layer before every n-th block");
    v("latents", latents, between(1, 4096), "vectors of an image after the resampler");
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
