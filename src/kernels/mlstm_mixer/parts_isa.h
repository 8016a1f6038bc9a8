// The mixer's parts, defined by each instruction set. Per-ISA.
#pragma once

#include "kernels/mlstm_mixer/parts.h"
#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {

// Splits [begin, end) into pieces of at most `most` tokens of one sample; calls body(sample, first, last) for
// each.
template <class Body>
TESSERA_INLINE void for_each_piece(int64_t tokens, int64_t most, int64_t begin, int64_t end, Body body) {
  for (int64_t at = begin; at < end;) {
    const int64_t b = at / tokens, t = at % tokens;
    int64_t count = tokens - t < end - at ? tokens - t : end - at;
    count = count < most ? count : most;
    body(b, t, t + count);
    at += count;
  }
}

// Sums the lanes of eight vectors.
TESSERA_INLINE void lane_sums(const vf (&v)[8], float* out) {
#if defined(__AVX2__)
  __m256 e[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
#if defined(__AVX512F__)
    e[i] = (__m256)(__builtin_shufflevector(v[i], v[i], 0, 1, 2, 3, 4, 5, 6, 7) +
                    __builtin_shufflevector(v[i], v[i], 8, 9, 10, 11, 12, 13, 14, 15));
#else
    e[i] = (__m256)v[i];
#endif
  }
  const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(e[0], e[1]), _mm256_hadd_ps(e[2], e[3]));
  const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(e[4], e[5]), _mm256_hadd_ps(e[6], e[7]));
  const __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
  _mm256_storeu_ps(out, low + high);
#else
  for (int i = 0; i < 8; ++i) out[i] = sum(v[i]);
#endif
}

#if defined(__AVX512BF16__)
// Loads words of two bfloat16: the next 2 W of n > 0 numbers, padded with zeros.
TESSERA_INLINE vi load_pairs(const bf16* from, int64_t n) {
  if (n >= 2 * W) return (vi)_mm512_loadu_si512(from);
  return (vi)_mm512_maskz_loadu_epi16((__mmask32)((1ull << n) - 1), from);
}
#endif

void depthwise_forward(const DepthwiseForward& call, int64_t begin, int64_t end);
void depthwise_backward(const DepthwiseBackward& call, int64_t begin, int64_t end);
void headwise_forward(const HeadwiseForward& call, int64_t begin, int64_t end);
void headwise_backward(const HeadwiseBackward& call, int64_t begin, int64_t end);
void gates_forward(const GatesForward& call, int64_t begin, int64_t end);
void gates_backward(const GatesBackward& call, int64_t begin, int64_t end);
void head_norm_forward(const HeadNormForward& call, int64_t begin, int64_t end);
void head_norm_backward(const HeadNormBackward& call, int64_t begin, int64_t end);

}  // namespace tessera::kernels::TESSERA_ISA
