// Activation checkpointing: forget what is inside a block, compute it again for its gradient.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <vector>

namespace tessera::nn {

// function(x), keeping only x; the backward pass runs the function again (Chen et al. 2016). `parameters` are
// those the function reads; they get their gradients. The function must give the same values when called
// again: draw random numbers from counter-based streams only. Autocast is as it was in the forward pass.
torch::Tensor checkpoint(const std::function<torch::Tensor(const torch::Tensor&)>& function,
                         const torch::Tensor& x, const std::vector<torch::Tensor>& parameters);

// Whether this thread computes a block again for its gradient: what a layer does once a step (running
// statistics) it has done before.
bool recomputing();

}  // namespace tessera::nn
