// The mask of AIM's pre-training (models/backbones/aim.cpp).
#pragma once

#include "ops/torch.h"

namespace tessera::models {

// Returns the bias of attention [batch, 1, tokens, tokens] if a token sees itself, the tokens before it and all
// tokens of its image's prefix: 0 for these, -infinity for the others. `in_prefix`: bool [batch, tokens].
torch::Tensor prefix_bias(const torch::Tensor& in_prefix);

}  // namespace tessera::models
