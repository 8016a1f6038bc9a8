// The selective scan of Mamba (kernels/selective_scan has its formula) as an operation with gradients, and the
// convolution before it.
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

// The short convolution over a sequence before the scan: silu(bias + sum_j weight[:, 0, j] x_{t - K + 1 + j}) for every
// channel, zeros before the first token. x [batch, tokens, channels], weight [channels, 1, K], bias [channels] or
// undefined. With `reverse` token t sees later tokens instead, as if the sequence were flipped before and after. Float
// tensors on a CPU run on the kernel of Vision-LSTM's mixer; elsewhere it is composed of ATen operations.
torch::Tensor causal_convolution_silu(const torch::Tensor& x, const torch::Tensor& weight,
                                      const torch::Tensor& bias, bool reverse);
// The composition.
torch::Tensor causal_convolution_silu_unfused(const torch::Tensor& x, const torch::Tensor& weight,
                                              const torch::Tensor& bias, bool reverse);

// While it lives, selective scans and bi-WKV of this thread are `tessera::selective_scan` and `tessera::bi_wkv`. They
// run on the kernels, whatever InferenceSettings::fused is, and a trace records each as one node.
class WholeScans {
 public:
  explicit WholeScans(bool on = true);
  ~WholeScans();
  WholeScans(const WholeScans&) = delete;
  WholeScans& operator=(const WholeScans&) = delete;

 private:
  bool before_;
};
bool whole_scans();

}  // namespace tessera::ops
