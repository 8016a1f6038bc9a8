// The mLSTM mixer: everything between the two large projections of a Vision-LSTM layer, as one operation:
//
//   x, z = halves of u                     (u = proj_up of the normed tokens)
//   a = silu(conv(x))                      depthwise: 3x3 over the grid, or over the sequence, or none
//   q, k = blocks of a, v = blocks of x    block-diagonal linear maps, 4x4 blocks
//   i, f = linear in [q, k, v]             one number per head
//   h = mlstm(q, k, v, i, f)
//   y = (norm(h) * (1 + w) + b + skip * a) * silu(z)      norm per head, eps 1e-5
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/mlstm_mixer/mlstm_mixer.h"
#include "ops/mlstm.h"

namespace tessera::ops {

// Undefined parameters are left out. Names and shapes are those of visit_mixer_parameters with C = inner. The
// composition also supports: no conv_weight (conv(x) = x), no skip, blocks of any size, and for paper_cell
// input_weight and forget_weight of [heads, inner].
struct MlstmMixerParameters : kernels::MlstmMixerParametersOf<torch::Tensor> {
  // Separate convolutions for k and, with value_conv, for v, of the same shape; undefined: they share that of
  // q.
  torch::Tensor k_conv_weight = {}, k_conv_bias = {}, v_conv_weight = {}, v_conv_bias = {};
};

struct MlstmMixerOptions {
  int64_t heads = 4;
  int64_t rows = 0, columns = 0;  // the grid of the 3x3 convolution; unused for sequences
  bool causal = true;             // a convolution over the sequence does not see later tokens
  bool reverse = false;           // walk the tokens from last to first (also reverses the convolution's grid)
  double norm_eps = 1e-5, cell_eps = 1e-6;
  // Ascending positions, in the sequence, of tokens outside the grid (class tokens), which the 3x3
  // convolution does not change.
  std::vector<int64_t> off_grid = {};
  // The cell as in the Vision-LSTM paper (eq. 3 to 9): gates linear in x, an exponential forget gate, a key
  // bias not divided by sqrt(d), no eps, sigmoid(z) as the output gate.
  bool paper_cell = false;
  bool value_conv = false;  // v has its convolution too
  // For the channels of some heads alone: from the gates [batch, tokens, all heads] without bias that these channels give,
  // returns the gates of these heads with what the other channels give. Gate biases are those of these heads.
  std::function<torch::Tensor(const torch::Tensor&)> whole_gates = {};
  MlstmState* last = nullptr;  // receives the state after the last token of the walk
};

// [batch, tokens, 2 * inner] -> [batch, tokens, inner]. Uses the fused form if it supports the shape, device
// and dtype, else the composition below.
torch::Tensor mlstm_mixer(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                          const MlstmMixerOptions& options);

// True if mlstm_mixer uses the fused form. It needs a CPU, float32 or bfloat16, blocks of 4, a skip and the
// published cell. The convolution is causal or 3x3 with every token on the grid, one for q and k, none for v.
bool mlstm_mixer_fuses(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                       const MlstmMixerOptions& options);

// The same in ATen operations: the definition, the fallback and the oracle of the tests.
torch::Tensor mlstm_mixer_unfused(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                                  const MlstmMixerOptions& options);

// The inputs of the mixer's cell, and of the skip and output gate after it.
struct MlstmMixerInputs {
  torch::Tensor q, k, v;  // [batch, tokens, inner]
  torch::Tensor i, f;     // [batch, heads, tokens]
  torch::Tensor a, z;     // [batch, tokens, inner]
};
// Computes them by the kernels of a GPU, with gradients, in bfloat16, for tokens that are all on the grid or in a causal
// sequence. q is undefined if no kernel takes them (mlstm_mixer_gpu.cpp).
MlstmMixerInputs mixer_inputs_on_gpu(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                                     const MlstmMixerOptions& options);

// y_(4b+o) = sum_d weight[b, o, d] x_(4b+d) + bias: a linear map of blocks [blocks, size, size] on the last
// axis.
torch::Tensor headwise_linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

// Depthwise convolution of a token sequence [batch, tokens, inner]. Weight [inner, 1, k, k] covers the rows x
// columns grid, padded with zeros. Weight [inner, 1, k] covers the last k tokens up to each one or, if not
// causal (k odd), tokens on both sides. `reverse` walks from the last token to the first: the result of flipped tokens,
// flipped back.
torch::Tensor sequence_conv(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                            int64_t rows, int64_t columns, bool causal = true, bool reverse = false);

// Layer norm over each head's channels of the last axis.
torch::Tensor headwise_norm(const torch::Tensor& h, int64_t heads, const torch::Tensor& scale,
                            const torch::Tensor& bias, double eps);

// One token through the mixer, after the tokens in a state: the same formulas with the cell as a recurrence.
// Consists of ATen operations, gradients by autograd.

// Undefined before the first token.
struct MlstmMixerState {
  torch::Tensor
      inputs;  // x of the last kernel - 1 tokens, [batch, kernel - 1, inner]; none without convolution
  MlstmState cell;
};

// u [batch, 1, 2 * inner] -> [batch, 1, inner]; updates the state. The convolution must be causal or none,
// the direction not reversed; rows, columns and off_grid are ignored.
torch::Tensor mlstm_mixer_step(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                               const MlstmMixerOptions& options, MlstmMixerState& state);

// The implicit attention of a Vision-LSTM layer: the matrix with which its cell's parallel form mixes the
// tokens.

// C_ts / (n_t + eps) of ops/mlstm.h, so that h = matrix v: u [batch, tokens, 2 * inner] -> [batch, heads,
// tokens, tokens]. Rows and columns are in token order for any walk. Weights may be negative. Rows sum to 1
// only if that sum exceeds exp(-m). Uses only ATen operations, since it is for inspection.
torch::Tensor mlstm_mixing(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                           const MlstmMixerOptions& options);

}  // namespace tessera::ops
