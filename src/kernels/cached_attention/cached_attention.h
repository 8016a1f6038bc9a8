// One new token of each sample joins a key-value cache and reads all that the cache holds, for decoding token after
// token. Heads of queries share heads of keys and values in groups (Ainslie et al. 2023).
//
//   k_n = R k,  v_n = v                           the new token, number n = keys - 1, is written into the cache
//   s_j = scale (R q) . k_j + slope (j - n)       for the keys j that are seen
//   out = sum_j softmax(s)_j v_j
//
// R rotates channels m and m + D/2 by the token's angle m (RoPE, Su et al. 2021, in LLaMA's layout). Arithmetic is in
// float whatever the tensors are stored in. Memory traffic: the cache once, which bounds the time. C headers only:
// per-ISA files include it.
#pragma once

#include "kernels/types.h"

namespace tessera::kernels {

struct CachedAttention {
  int64_t batch = 0, heads = 0, kv_heads = 0;  // heads is a multiple of kv_heads
  int64_t keys = 0, dim = 0;                   // keys with the new one
  float scale = 1;                             // of the products q . k
  HeadRows q{}, new_k{}, new_v{};  // (batch, heads or kv_heads, 1, dim): the token stride is not used
  HeadRowsOut k{}, v{};            // the cache (batch, kv_heads, keys, dim)
  HeadRowsOut out{};               // (batch, heads, 1, dim), may not overlap the others
  const float *cos = nullptr, *sin = nullptr;  // (batch or 1, dim / 2), null: no rotation
  int64_t angles_batch = 0;                    // stride between samples, 0: one row for all
  int64_t window = 0;                          // the newest `window` keys are seen, 0 = all
  const uint8_t* seen = nullptr;               // (batch, keys) 0 or 1, null: all; padding is not seen
  int64_t seen_batch = 0;                      // stride between samples
  const float* slopes = nullptr;               // (heads): ALiBi (Press et al. 2022), null: none
};
// Checks, then shares samples and heads of keys among core's threads. A token that sees no key reads zeros.
void cached_attention(const CachedAttention& call);

// An instruction set does the heads of keys [begin, end), numbered (sample, head). `scratch` holds
// keys + dim floats for each query of a group.
struct CachedAttentionFunctions {
  void (*attend)(const CachedAttention& call, int64_t begin, int64_t end, float* scratch);
};

}  // namespace tessera::kernels
