// The merged form of VanillaNet (models/backbones/vanillanet.cpp).
#pragma once

#include "nn/named_tensors.h"

namespace tessera::models {

// Returns the tensors of the merged form (`model.merged`) from all tensors of the training form: each batch norm goes
// into the layer before it, and each pair of layers without an activation in between becomes one. Computes in float64,
// returns the dtype of the weights. Throws Error if a tensor is missing, or if the slope of the leaky ReLU is not 1.
NamedTensors merged_vanillanet(const NamedTensors& trained);

}  // namespace tessera::models
