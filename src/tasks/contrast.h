// Contrastive learning of images and their captions by two towers (Radford et al. 2021, CLIP):
//
//   u_i = normalise(backbone(image_i) W_image)      v_j = normalise(text(caption_j) W_text)
//   s_ij = exp(logit_scale) u_i . v_j
//   loss = mean over i of (cross_entropy(s_i., i) + cross_entropy(s_.i, i)) / 2
// Every image is compared with every caption of the batch of all processes.
//
// A sample is an image with its captions, of which one is drawn. The text tower is a causal Transformer over
// the caption's bytes that reads the last one.
#pragma once

#include "tasks/registry.h"

namespace tessera::tasks {

struct ContrastConfig {
  int64_t embed_dim = 256;
  int64_t text_dim = 128, text_depth = 4, text_heads = 4, text_length = 64;
  double temperature = 0.07;
  template <class V>
  void visit(V& v) {
    v("embed_dim", embed_dim, between(1, 65536), "width of the space that both towers map to");
    v("text_dim", text_dim, between(1, 65536), "width of the text tower's tokens");
    v("text_depth", text_depth, between(1, 1000), "blocks of the text tower");
    v("text_heads", text_heads, between(1, 1024), "attention heads of the text tower");
    v("text_length", text_length, between(1, 65536), "bytes of a caption that are read");
    v("temperature", temperature, above_to(0, 100), "first value of exp(-logit_scale)");
  }
};

TaskKind contrast_kind();

}  // namespace tessera::tasks
