// Attention for decoding: one new token of each sample joins a key-value cache and attends to all of it.
// Groups of query heads share heads of keys and values (Ainslie et al. 2023).
//
//   k_n = R k,  v_n = v                           the cache stores the new token, n = keys - 1
//   s_j = scale (R q) . k_j + slope (j - n)       for the visible keys j
//   out = sum_j softmax(s)_j v_j
//
// R rotates channels m and m + D/2 by the token's angle m (RoPE, Su et al. 2021, in LLaMA's layout).
// Arithmetic is in float for every storage type. The time is bounded by reading the cache once. C headers
// only: per-ISA files include it.
#pragma once

#include "kernels/types.h"

namespace tessera::kernels {

struct CachedAttention {
  int64_t batch = 0, heads = 0, kv_heads = 0;  // heads is a multiple of kv_heads
  int64_t keys = 0, dim = 0;                   // keys including the new one
  float scale = 1;                             // factor of the products q . k
  HeadRows q{}, new_k{}, new_v{};  // (batch, heads or kv_heads, 1, dim): the token stride is not used
  HeadRowsOut k{}, v{};            // the cache (batch, kv_heads, keys, dim)
  HeadRowsOut out{};               // (batch, heads, 1, dim), may not overlap the others
  const float *cos = nullptr, *sin = nullptr;  // (batch or 1, dim / 2), null: no rotation
  int64_t angles_batch = 0;                    // stride between samples, 0: one row for all
  int64_t window = 0;                          // the newest `window` keys are seen, 0 = all
  const uint8_t* seen = nullptr;               // (batch, keys) 0 or 1, null: all; 0 for padding
  int64_t seen_batch = 0;                      // stride between samples
  const float* slopes = nullptr;               // (heads): ALiBi (Press et al. 2022), null: none
};
// Checks, then divides samples and heads of keys among core's threads. A token without keys gets zeros.
void cached_attention(const CachedAttention& call);

// One implementation: processes heads of keys [begin, end), numbered (sample, head). `scratch` holds keys +
// dim floats for each query of a group.
struct CachedAttentionFunctions {
  void (*attend)(const CachedAttention& call, int64_t begin, int64_t end, float* scratch);
};

}  // namespace tessera::kernels
