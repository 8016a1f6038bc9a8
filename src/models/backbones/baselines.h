// Parts of the baselines that other files call: the mask of AIM's pre-training (aim.cpp), and the merged form of VanillaNet
// (vanillanet_merge.cpp).
#pragma once

#include "nn/named_tensors.h"

namespace tessera::models {

// Returns the bias of attention [batch, 1, tokens, tokens] if a token sees itself, the tokens before it and all
// tokens of its image's prefix: 0 for these, -infinity for the others. `in_prefix`: bool [batch, tokens].
torch::Tensor prefix_bias(const torch::Tensor& in_prefix);

// Returns the tensors of the merged form (`model.merged`) from all tensors of the training form: each batch norm goes
// into the layer before it, and each pair of layers without an activation in between becomes one. Computes in float64,
// returns the dtype of the weights. Throws Error if a tensor is missing, or if the slope of the leaky ReLU is not 1.
NamedTensors merged_vanillanet(const NamedTensors& trained);

}  // namespace tessera::models
