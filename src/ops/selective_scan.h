// The selective scan of Mamba (kernels/selective_scan has its formula) as an operation with gradients.
#pragma once

#include "ops/torch.h"

namespace tessera::ops {

// Tensors have tokens before channels. B and C are [batch, tokens, states], or [batch, tokens, groups,
// states] with one entry per group of channels, or [channels, states] for all tokens.
struct SelectiveScanInputs {
  torch::Tensor u, delta;  // [batch, tokens, channels]
  torch::Tensor a;         // [channels, states]
  torch::Tensor b, c;
  torch::Tensor d = {};            // [channels]: skip; or undefined
  torch::Tensor z = {};            // [batch, tokens, channels]: gate; or undefined
  torch::Tensor delta_bias = {};   // [channels] or undefined
  bool softplus = true;            // of delta + delta_bias
  bool reverse = false;            // walks from the last token to the first
  torch::Tensor first_state = {};  // [batch, channels, states], undefined: zeros
};
struct SelectiveScanResult {
  torch::Tensor y;           // [batch, tokens, channels], like u
  torch::Tensor last_state;  // [batch, channels, states], without a gradient; only if requested
};

// On a CPU, floats (and lower precision as floats) run on the kernel. For a gradient of the first state,
// doubles and other devices, the composition is used. Under WholeScans, a scan from zeros with
// B and C per token is recorded by traces as
//   tessera::selective_scan(u, delta, a, b, c, d, z, delta_bias, softplus, reverse) -> y
// with b and c [batch, tokens, states].
SelectiveScanResult selective_scan(const SelectiveScanInputs& in, bool with_last_state = false);
// The definition in ATen operations: log2(tokens) rounds over all states at once.
SelectiveScanResult selective_scan_unfused(const SelectiveScanInputs& in, bool with_last_state = false);

// One more token, u, delta, z [batch, channels], b and c [batch, (groups,) states], after `in.first_state`.
SelectiveScanResult selective_scan_step(SelectiveScanInputs in);

}  // namespace tessera::ops
