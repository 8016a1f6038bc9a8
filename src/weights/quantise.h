// Quantisation-aware training with learned step sizes (LSQ: Esser et al. 2020; Q-ViT: Li et al. 2022).
// Quantises only
// attention and feed-forward networks of the blocks.
//   linear   weights and inputs of their linear layers (ops/lsq.h)
//   q_vit    also q, k, v and the attention probabilities, with a step size and a zero point for each head
//            and a LayerNorm on q and k (nn/quantised_attention.h)
#pragma once

#include <cstdint>

#include "core/config.h"
#include "models/base/model.h"

namespace tessera::train {

enum class QuantizationForm { linear, q_vit };

// [quantization]: sets both widths or neither.
struct QuantizationConfig {
  int64_t weights = 0, activations = 0;
  QuantizationForm form = QuantizationForm::linear;
  template <class V>
  void visit(V& v);
  bool enabled() const { return weights > 0; }
};

// Result of quantise_blocks.
struct QuantisedBlocks {
  int64_t linear = 0, attention = 0;  // number of layers
};

// Adds step sizes to these layers. Throws a usage error if the model has none, or if form q_vit meets a model
// without global attention.
QuantisedBlocks quantise_blocks(models::Backbone& model, const QuantizationConfig& config);

}  // namespace tessera::train

template <>
struct tessera::EnumNames<tessera::train::QuantizationForm> {
  static constexpr std::array names = {"linear", "q_vit"};
};

template <class V>
void tessera::train::QuantizationConfig::visit(V& v) {
  v("weights", weights, "bits of the blocks' weights in quantisation-aware training, 0 = off");
  v("activations", activations, "bits of the inputs of those layers");
  v("form", form, choice<QuantizationForm>(),
    "linear: the linear layers; q_vit: also q, k, v and the probabilities of attention, a head, with a "
    "LayerNorm on q and k");
}
