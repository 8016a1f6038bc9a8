// Softmax attention as one operation, including rotary positions, bias and masks:
//
//   softmax(R q (R k)^T / sqrt(d) + bias) v          R rotates pairs of channels by the token's angles (RoPE)
//
// Fused on a CPU in float32 and bfloat16 (kernels/attention), else composed of ATen operations.
#pragma once

#include <cstdint>

#include "ops/torch.h"

namespace tessera::ops {

struct AttentionOptions {
  // Cosines and sines of the angles of channels (2m, 2m+1): [tokens, pairs], or [heads, tokens, pairs], by
  // position: key j uses row j, query i row first_query + i. Keys at other positions have their own tables.
  // Channels after the pairs are unchanged. Undefined: no rotation.
  torch::Tensor cos = {}, sin = {}, key_cos = {}, key_sin = {};
  // Added to the scores: up to four axes, broadcast to [batch, heads, queries, keys]. If the first axis n
  // divides the batch, it is repeated: sample b uses entry b modulo n. Undefined: none.
  torch::Tensor bias = {};
  bool causal = false;       // a query sees the keys up to its own position
  int64_t first_query = 0;   // the first query's position: the length of a key-value cache
  int64_t window = 0;        // keys closer than this are visible; 0 = all
  double future_weight = 1;  // factor after the softmax for keys after the query (iLLaMA)
};

// q [batch, heads, queries, d], k, v [batch, heads, keys, d] -> like q. Under autocast, in its precision.
torch::Tensor attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                        const AttentionOptions& options = {});

// Self-attention from one tensor: [batch, tokens, 3, heads, d] -> [batch, tokens, heads * d], no copies.
torch::Tensor attention_packed(const torch::Tensor& qkv, const AttentionOptions& options = {});

// The definition in ATen operations: the fallback and the oracle of the tests. Stores the weights of the
// values in `weights`, [batch, heads, queries, keys].
torch::Tensor attention_unfused(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                const AttentionOptions& options = {}, torch::Tensor* weights = nullptr);

// Returns those weights of the values, [batch, heads, queries, keys].
torch::Tensor attention_weights(const torch::Tensor& q, const torch::Tensor& k,
                                const AttentionOptions& options = {});

// Rotates x [..., tokens, channels] by tables as above; the tables' last axis is half the number of rotated
// channels.
torch::Tensor rotate_pairs(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin);
// Does the same by a kernel for x [batch, heads, tokens, channels] on a GPU. Returns an undefined tensor if none takes it,
// or if the tables have gradients.
torch::Tensor rotate_on_gpu(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin);

// Computes attention by a kernel for bfloat16 and at most 256 keys on a GPU, of rotated q and k: angles in the options are not
// used. Without k, q is [batch, tokens, 3, heads, d]. Returns an undefined tensor if no kernel takes it.
torch::Tensor attention_on_gpu(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               const AttentionOptions& options);

// True if attention uses the fused form: on a CPU, float32 or bfloat16, unless the settings forbid it.
bool attention_fuses(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v);

}  // namespace tessera::ops
