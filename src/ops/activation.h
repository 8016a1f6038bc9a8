// Activations between two products, and gated ones.
#pragma once

#include "ops/torch.h"

#include "kernels/gpu/calls.h"

namespace tessera::ops {

using ActivationKind = kernels::gpu::ActivationKind;

// Returns f(x), or f(x) gate for a defined gate of x's shape. On a GPU by one kernel where there is one, with
// gradients an autograd node; otherwise composed of ATen operations.
torch::Tensor activation(ActivationKind kind, const torch::Tensor& x, const torch::Tensor& gate = {});

}  // namespace tessera::ops
