// Activation checkpointing: drops a block's activations and recomputes them for its gradient.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <vector>

namespace tessera::nn {

// Returns function(x), keeping only x; backward calls the function again (Chen et al. 2016). `parameters` are
// those that the function reads; they get gradients. The function must be repeatable: draw random numbers
// only from counter-based streams. Autocast is restored for the second call.
torch::Tensor checkpoint(const std::function<torch::Tensor(const torch::Tensor&)>& function,
                         const torch::Tensor& x, const std::vector<torch::Tensor>& parameters);

// True while this thread recomputes a block for its gradient. Layers then skip updates that happen once per
// step (running statistics).
bool recomputing();

}  // namespace tessera::nn
