// Attention of one new token to a whole key-value cache, for token-by-token decoding (formula in
// kernels/cached_attention). Without gradients fused on a CPU in float32 and bfloat16, and on a GPU in bfloat16; else composed of
// ATen operations.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::ops {

struct CachedAttentionOptions {
  // [batch or 1, d / 2]: cosines and sines of the new token's angles, for channel pairs (m, m + d / 2);
  // undefined: no rotation. Keys in the cache are already rotated.
  torch::Tensor cos = {}, sin = {};
  torch::Tensor seen = {};    // bool [batch, keys]: false for padding; undefined: all true
  torch::Tensor slopes = {};  // [heads]: ALiBi; undefined: none
  int64_t window = 0;         // the newest `window` keys are visible, 0 = all
  // int64 [1] on the device of q: the tokens before the new one, which goes to that place; keys after it are not read. So all tokens
  // are the same calls, which a GPU's graph can repeat. Undefined: the new token has the last place of the cache.
  torch::Tensor before = {};
};

// q [batch, heads, 1, d], new_k and new_v [batch, kv_heads, 1, d]; keys and values [batch, kv_heads, keys, d]
// are the cache, to which the new token is added. heads is a multiple of kv_heads. -> like q.
torch::Tensor cached_attention(const torch::Tensor& q, const torch::Tensor& new_k, const torch::Tensor& new_v,
                               const torch::Tensor& keys, const torch::Tensor& values,
                               const CachedAttentionOptions& options = {});

// The definition in ATen operations: the fallback and the oracle of the tests.
torch::Tensor cached_attention_unfused(const torch::Tensor& q, const torch::Tensor& new_k,
                                       const torch::Tensor& new_v, const torch::Tensor& keys,
                                       const torch::Tensor& values,
                                       const CachedAttentionOptions& options = {});

// Rotates channels m and m + d / 2 of x [..., d] by angles with cosines and sines [..., d / 2].
torch::Tensor rotate_halves(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin);

}  // namespace tessera::ops
