// Quantisation-aware training (LSQ: Esser et al. 2020; Q-ViT: Li et al. 2022) of the blocks' attention and
// feed-forward networks, to learned step sizes; everything else stays as it is.
//   linear   weights and inputs of their linear layers (ops/lsq.h)
//   q_vit    besides these q, k, v and the probabilities of attention, a step size and a zero point a head,
//            with a LayerNorm on q and k (nn/quantised_attention.h)
#pragma once

#include <cstdint>

#include "core/config.h"
#include "models/base/model.h"

namespace tessera::train {

enum class QuantizationForm { linear, q_vit };

// [quantization]: both widths or neither.
struct QuantizationConfig {
  int64_t weights = 0, activations = 0;
  QuantizationForm form = QuantizationForm::linear;
  template <class V>
  void visit(V& v);
  bool enabled() const { return weights > 0; }
};

// What quantise_blocks found.
struct QuantisedBlocks {
  int64_t linear = 0, attention = 0;  // layers
};

// Gives each of those layers its step sizes. A usage error for a model that has none, and for form q_vit on a
// model without attention among all its tokens.
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
