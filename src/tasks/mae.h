// Masked auto-encoding (He et al. 2022, "Masked autoencoders are scalable vision learners"): the encoder sees
// a part of the patches, a light decoder predicts the pixels of the others.
//
//   visible, masked = a random split of the patches, masked a share `mask_ratio` of them
//   y = decoder([encoder(visible) W, mask tokens] in the order of the grid + positions)
//   loss = mean over masked patches of mean over pixels of (y - t)^2
// t are the patch's pixels; with `normalise_pixels` less their mean and divided by their deviation.
//
// A sample is an image. Any backbone that can do without some of its patches (models/encoder.h) is an
// encoder. The decoder's parameters have the names of the published files.
#pragma once

#include "tasks/registry.h"

namespace tessera::tasks {

struct MaeConfig {
  double mask_ratio = 0.75;
  bool normalise_pixels = true;
  int64_t decoder_dim = 512, decoder_depth = 8, decoder_heads = 16;
  template <class V>
  void visit(V& v) {
    v("mask_ratio", mask_ratio, from_to_below(0.01, 1), "share of the patches that the encoder does not see");
    v("normalise_pixels", normalise_pixels, "predict each patch less its mean, divided by its deviation");
    v("decoder_dim", decoder_dim, between(4, 65536), "width of the decoder's tokens");
    v("decoder_depth", decoder_depth, between(0, 1000), "blocks of the decoder");
    v("decoder_heads", decoder_heads, between(1, 1024), "attention heads of the decoder");
  }
};

TaskKind mae_kind();

}  // namespace tessera::tasks
