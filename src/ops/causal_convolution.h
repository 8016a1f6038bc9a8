// The short convolution over a sequence before Mamba's scan.
#pragma once

#include "ops/torch.h"

namespace tessera::ops {

// silu(bias + sum_j weight[:, 0, j] x_{t - K + 1 + j}) for every channel, zeros before the first token. x
// [batch, tokens, channels], weight [channels, 1, K], bias [channels] or undefined. With `reverse` token t
// sees later tokens instead, as if the sequence were flipped before and after. Float tensors on a CPU run on
// the kernel of Vision-LSTM's mixer; elsewhere it is composed of ATen operations.
torch::Tensor causal_convolution_silu(const torch::Tensor& x, const torch::Tensor& weight,
                                      const torch::Tensor& bias, bool reverse);
// The composition.
torch::Tensor causal_convolution_silu_unfused(const torch::Tensor& x, const torch::Tensor& weight,
                                              const torch::Tensor& bias, bool reverse);

}  // namespace tessera::ops
