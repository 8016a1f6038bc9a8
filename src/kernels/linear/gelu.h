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
// The same to 8e-5, for what is rounded to 8 bits in front and behind: Phi(x) = 1/2 + x P(x^2), at |x| = 4.2
// 1 or 0.
TESSERA_INLINE vf gelu_coarse(vf x) {
  const vf above = max(splat(-4.2f), x), held = min(splat(4.2f), above), s = held * held;
  vf p = s * -9.01750674e-10f + 7.9413212e-8f;
  p = p * s - 3.03792649e-6f;
  p = p * s + 6.68906214e-5f;
  p = p * s - 9.50656889e-4f;
  p = p * s + 9.2982268e-3f;
  p = p * s - 6.55281991e-2f;
  p = p * s + 3.98465872e-1f;
  return above * (held * p + 0.5f);
}

// d gelu / dx = Phi(x) + x phi(x).
TESSERA_INLINE vf gelu_slope(vf x) {
  return 0.5f * (1.0f + erf(x * 0.70710678f)) + x * 0.39894228f * exp(-0.5f * x * x);
}

}  // namespace tessera::kernels::TESSERA_ISA
