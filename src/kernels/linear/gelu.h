// The exact GELU, x Phi(x) (Hendrycks & Gimpel 2016). Per-ISA.
#pragma once

#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {

// erf(z) = z P(z^2) / Q(z^2), fitted to 1.5e-8 (relative) on |z| < 3.85; +-1 beyond.
TESSERA_INLINE vf erf(vf z) {
  const vf s = z * z;
  vf p = s * 2.10826513e-6f + 2.85663689e-4f;
  p = p * s + 3.67364158e-3f;
  p = p * s + 5.24787909e-2f;
  p = p * s + 1.87891610e-1f;
  p = p * s + 1.12837915f;
  vf q = s * 3.87311877e-5f + 1.14542246e-3f;
  q = q * s + 1.47843144e-2f;
  q = q * s + 1.13126344e-1f;
  q = q * s + 4.99847480e-1f;
  q = q * s + 1.0f;
  const vf inside = z * p * reciprocal(min(q, splat(1e6f)));
  const vf beyond = z < 0.0f ? splat(-1.0f) : splat(1.0f);
  const vf result = abs(z) < 3.85f ? inside : beyond;
  return z != z ? z : result;
}
TESSERA_INLINE vf gelu(vf x) { return 0.5f * x * (1.0f + erf(x * 0.70710678f)); }
#if defined(__AVX512F__)
// Phi(-|x|) = c0 + f (c1 + f c2) in 16 pieces of |x|, f the distance from a piece's middle in its widths: to
// 4.2e-5.
alignas(64) constexpr float kTail[3][16] = {
    {0.5f, 0.39314172f, 0.29381275f, 0.20798825f, 0.1390574f, 0.087596074f, 0.051884055f, 0.028847864f,
     0.015035485f, 0.0073373453f, 0.0033492988f, 0.0014289105f, 0.000569364f, 0.00021176378f, 7.3480114e-05f,
     2.3776896e-05f},
    {-0.10792239f, -0.10404482f, -0.093228176f, -0.077641159f, -0.060096696f, -0.043234594f, -0.028908653f,
     -0.01796557f, -0.010376972f, -0.0055707847f, -0.0027795711f, -0.0012890043f, -0.00055557885f,
     -0.00022256206f, -8.286479e-05f, -2.8674893e-05f},
    {0, 0.0038113534f, 0.0068296683f, 0.0085305423f, 0.0088024009f, 0.0079135261f, 0.0063476637f,
     0.0046006222f, 0.0030356883f, 0.0018325289f, 0.0010154106f, 0.00051767804f, 0.00024325697f,
     0.00010549593f, 4.2268774e-05f, 1.5659312e-05f},
};
#endif
// The same to 8e-5 (with AVX-512 5.7e-5, which is also what it gives far to the left), for what is rounded to
// 8 bits in front and behind.
TESSERA_INLINE vf gelu_coarse(vf x) {
#if defined(__AVX512F__)
  const vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, which is its low bits
  const vf size = min(splat(4.2f), abs(x)), piece = size * 3.68809524f + magic;
  const vf f = size * 3.68809524f - (piece - magic);
  const auto of_piece = [&](const float* table) __attribute__((always_inline)) {
    return (vf)_mm512_maskz_permutexvar_ps((__mmask16)-1, (__m512i)piece, (__m512)load(table));
  };
  const vf tail = of_piece(kTail[0]) + f * (of_piece(kTail[1]) + f * of_piece(kTail[2]));
  return max(vf{}, x) - size * tail;
#else
  // Phi(x) = 1/2 + x P(x^2), at |x| = 4.2 1 or 0.
  const vf above = max(splat(-4.2f), x), held = min(splat(4.2f), above), s = held * held;
  vf p = s * -9.01750674e-10f + 7.9413212e-8f;
  p = p * s - 3.03792649e-6f;
  p = p * s + 6.68906214e-5f;
  p = p * s - 9.50656889e-4f;
  p = p * s + 9.2982268e-3f;
  p = p * s - 6.55281991e-2f;
  p = p * s + 3.98465872e-1f;
  return above * (held * p + 0.5f);
#endif
}

// d gelu / dx = Phi(x) + x phi(x).
TESSERA_INLINE vf gelu_slope(vf x) {
  return 0.5f * (1.0f + erf(x * 0.70710678f)) + x * 0.39894228f * exp(-0.5f * x * x);
}

}  // namespace tessera::kernels::TESSERA_ISA
