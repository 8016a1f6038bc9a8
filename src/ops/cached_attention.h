// Attention of one new token to all that a key-value cache holds, for decoding token after token
// (kernels/cached_attention has the formula). Fused on a CPU in float32 and bfloat16 where no gradient is wanted, else
// composed of ATen operations.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::ops {

struct CachedAttentionOptions {
  // [batch or 1, d / 2]: cosines and sines of the new token's angles, channels m and m + d / 2 being a pair; undefined:
  // no rotation. Keys in the cache are rotated already.
  torch::Tensor cos = {}, sin = {};
  torch::Tensor seen = {};    // bool [batch, keys]: which keys are no padding; undefined: all
  torch::Tensor slopes = {};  // [heads]: ALiBi; undefined: none
  int64_t window = 0;         // the newest `window` keys are seen, 0 = all
};

// q [batch, heads, 1, d], new_k and new_v [batch, kv_heads, 1, d]; keys and values [batch, kv_heads, keys, d], the
// cache, whose last place gets the new token. heads is a multiple of kv_heads. -> like q.
torch::Tensor cached_attention(const torch::Tensor& q, const torch::Tensor& new_k, const torch::Tensor& new_v,
                               const torch::Tensor& keys, const torch::Tensor& values,
                               const CachedAttentionOptions& options = {});

// The definition in ATen operations: the fallback and the oracle of the tests.
torch::Tensor cached_attention_unfused(const torch::Tensor& q, const torch::Tensor& new_k,
                                       const torch::Tensor& new_v, const torch::Tensor& keys,
                                       const torch::Tensor& values,
                                       const CachedAttentionOptions& options = {});

// Channels m and m + d / 2 of x [..., d] rotated by angles whose cosines and sines are [..., d / 2].
torch::Tensor rotate_halves(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin);

}  // namespace tessera::ops
