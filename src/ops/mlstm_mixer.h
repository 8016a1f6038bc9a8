// What stands between the two large projections of a Vision-LSTM layer, as one operation:
//
//   x, z = halves of u                     (u = proj_up of the normed tokens)
//   a = silu(conv(x))                      depthwise: 3x3 over the grid, or causal over the sequence
//   q, k = blocks of a, v = blocks of x    block-diagonal linear maps, 4x4 blocks
//   i, f = linear in [q, k, v]             one number a head
//   h = mlstm(q, k, v, i, f)
//   y = (norm(h) * (1 + w) + b + skip * a) * silu(z)      normed head by head, eps 1e-5
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::ops {

struct MlstmMixerParameters {
  torch::Tensor conv_weight;       // [inner, 1, k, k], or [inner, 1, k] for the causal convolution
  torch::Tensor conv_bias;         // [inner] or undefined
  torch::Tensor q_weight, q_bias;  // [inner / 4, 4, 4]; bias [inner] or undefined
  torch::Tensor k_weight, k_bias, v_weight, v_bias;
  torch::Tensor input_weight, input_bias;    // [heads, 3 * inner], [heads]
  torch::Tensor forget_weight, forget_bias;  // the same
  torch::Tensor norm_weight, norm_bias;      // [inner]; bias may be undefined
  torch::Tensor skip;                        // [inner]
};

struct MlstmMixerOptions {
  int64_t heads = 4;
  int64_t rows = 0, columns = 0;  // the grid of the 3x3 convolution; unused by the causal one
  bool reverse = false;  // walk the tokens from last to first (the convolution's grid is turned with them)
  double norm_eps = 1e-5, cell_eps = 1e-6;
};

// [batch, tokens, 2 * inner] -> [batch, tokens, inner]. Takes the fused form where there is one for the
// shape, device and dtype, else the composition below.
torch::Tensor mlstm_mixer(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                          const MlstmMixerOptions& options);

// Whether mlstm_mixer takes the fused form: CPU, float32 or bfloat16, blocks of 4, a multiple of 16 channels
// a head.
bool mlstm_mixer_fuses(const torch::Tensor& u, const MlstmMixerParameters& parameters);

// The same in ATen operations: the definition, the fallback, and the oracle of the tests.
torch::Tensor mlstm_mixer_unfused(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                                  const MlstmMixerOptions& options);

// y_(4b+o) = sum_d weight[b, o, d] x_(4b+d) + bias: a linear map of blocks [blocks, size, size] on the last
// axis.
torch::Tensor headwise_linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

// Depthwise convolution of a token sequence [batch, tokens, inner]: weight [inner, 1, k, k] sees the rows x
// columns grid with zeros around it, weight [inner, 1, k] sees the k tokens up to each one.
torch::Tensor sequence_conv(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                            int64_t rows, int64_t columns);

// Layer norm of each head's share of the last axis.
torch::Tensor headwise_norm(const torch::Tensor& h, int64_t heads, const torch::Tensor& scale,
                            const torch::Tensor& bias, double eps);

}  // namespace tessera::ops
