// Quantisation-aware training (LSQ: Esser et al. 2020, as in Q-ViT: Li et al. 2022): weights and inputs of
// the linear layers in the blocks' attention and feed-forward networks are rounded to learned step sizes;
// everything else, and the products inside attention, stays as it is.
#pragma once

#include <cstdint>

#include "models/model.h"

namespace tessera::train {

// [quantization]: both or neither.
struct QuantizationConfig {
  int64_t weights = 0, activations = 0;
  template <class V>
  void visit(V& v) {
    v("weights", weights, "bits of the blocks' weights in quantisation-aware training, 0 = off");
    v("activations", activations, "bits of the inputs of those layers");
  }
  bool enabled() const { return weights > 0; }
};

// Gives each of those layers its step sizes and returns their number. A usage error for a model that has
// none.
int64_t quantise_blocks(models::Backbone& model, const QuantizationConfig& config);

}  // namespace tessera::train
