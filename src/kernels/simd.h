// Vectors of floats for per-ISA files, with GCC's vector extensions: operators do arithmetic, and the width W
// depends on the instruction set of the build.
//
// Everything here has internal linkage and is in the namespace of the instruction set; C headers only.
#pragma once

#ifndef TESSERA_ISA
#error "simd.h belongs to files that are built once per instruction set, see kernels/CMakeLists.txt"
#endif

#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels/types.h"

#define TESSERA_INLINE static inline __attribute__((always_inline))

namespace tessera::kernels::TESSERA_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

constexpr int W = kVectorBytes / 4;  // lanes of a vector
typedef float vf __attribute__((vector_size(kVectorBytes)));
typedef int32_t vi __attribute__((vector_size(kVectorBytes)));
typedef uint32_t vu __attribute__((vector_size(kVectorBytes)));
typedef uint16_t vh __attribute__((vector_size(kVectorBytes / 2)));

// A bfloat16 in memory.
struct bf16 {
  uint16_t bits;
};

TESSERA_INLINE vf splat(float x) { return x - vf{}; }
TESSERA_INLINE vi splat_int(int32_t x) { return x - vi{}; }

// The lane numbers 0 … W-1.
TESSERA_INLINE vi lanes() {
#if defined(__AVX512F__)
  return vi{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif defined(__AVX2__)
  return vi{0, 1, 2, 3, 4, 5, 6, 7};
#else
  return vi{0, 1, 2, 3};
#endif
}

TESSERA_INLINE vf load(const float* from) {
  vf v;
  memcpy(&v, from, sizeof v);
  return v;
}
TESSERA_INLINE void store(float* to, vf v) { memcpy(to, &v, sizeof v); }

TESSERA_INLINE vf widen(vh half) {
#if defined(__AVX512F__)
  const vu wide = (vu)_mm512_maskz_cvtepu16_epi32((__mmask16)-1, (__m256i)half);
#else
  const vu wide = __builtin_convertvector(half, vu);
#endif
  return (vf)(wide << 16);
}
// Rounds to nearest, ties to even; a NaN stays one.
TESSERA_INLINE vh narrow(vf v) {
#if defined(__AVX512BF16__)
  return (vh)_mm512_cvtneps_pbh((__m512)v);  // denormals become zeros
#else
  const vu bits = (vu)v;
  const vu rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const vu nan = (bits >> 16) | 0x40;
  const vi chosen = v != v ? (vi)nan : (vi)rounded;
#if defined(__AVX512F__)
  return (vh)_mm512_maskz_cvtepi32_epi16((__mmask16)-1, (__m512i)chosen);
#else
  return __builtin_convertvector((vu)chosen, vh);
#endif
#endif
}
TESSERA_INLINE vf to_bf16(vf v) { return widen(narrow(v)); }
// Returns words of two numbers that are exact in bfloat16, the first in the lower half.
TESSERA_INLINE vf pair_up(vf first, vf second) { return (vf)((vi)((vu)first >> 16) | (vi)second); }

#if defined(__AVX512BF16__)
// Returns sum + the products of pairs of bfloat16.
TESSERA_INLINE vf dot_pairs(vf sum, vi a, vi b) {
  return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#endif

TESSERA_INLINE vf load(const bf16* from) {
  vh half;
  memcpy(&half, from, sizeof half);
  return widen(half);
}
TESSERA_INLINE void store(bf16* to, vf v) {
  const vh half = narrow(v);
  memcpy(to, &half, sizeof half);
}

// Loads the first n lanes, 0 < n < W (also n = W); the others are zero, and memory after them is not read.
TESSERA_INLINE vf load_part(const float* from, int64_t n) {
#if defined(__AVX512F__)
  return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
#elif defined(__AVX2__)
  return (vf)_mm256_maskload_ps(from, (__m256i)(lanes() < (int32_t)n));
#else
  vf v = {};
  for (int64_t i = 0; i < n; ++i) v[i] = from[i];
  return v;
#endif
}
TESSERA_INLINE void store_part(float* to, vf v, int64_t n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)v);
#elif defined(__AVX2__)
  _mm256_maskstore_ps(to, (__m256i)(lanes() < (int32_t)n), (__m256)v);
#else
  for (int64_t i = 0; i < n; ++i) to[i] = v[i];
#endif
}
TESSERA_INLINE vf load_part(const bf16* from, int64_t n) {
#if defined(__AVX512F__)
  return widen((vh)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), from));
#else
  vh half = {};
  for (int64_t i = 0; i < n; ++i) half[i] = from[i].bits;
  return widen(half);
#endif
}
TESSERA_INLINE void store_part(bf16* to, vf v, int64_t n) {
  const vh half = narrow(v);
#if defined(__AVX512F__)
  _mm256_mask_storeu_epi16(to, (__mmask16)((1u << n) - 1), (__m256i)half);
#else
  for (int64_t i = 0; i < n; ++i) to[i].bits = half[i];
#endif
}

// The same for a row with `left` numbers remaining, which may be W or more.
template <class T>
TESSERA_INLINE vf get(const T* from, int64_t left) {
  return left >= W ? load(from) : load_part(from, left);
}
template <class T>
TESSERA_INLINE void put(T* to, vf value, int64_t left) {
  if (left >= W)
    store(to, value);
  else
    store_part(to, value, left);
}
TESSERA_INLINE void add_to(float* to, vf value, int64_t left) { put(to, get(to, left) + value, left); }

// a > b ? a : b; b if one of them is NaN.
#if defined(__AVX512F__)
TESSERA_INLINE vf max(vf a, vf b) { return (vf)_mm512_maskz_max_ps((__mmask16)-1, (__m512)a, (__m512)b); }
TESSERA_INLINE vf min(vf a, vf b) { return (vf)_mm512_maskz_min_ps((__mmask16)-1, (__m512)a, (__m512)b); }
#elif defined(__AVX2__)
TESSERA_INLINE vf max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
TESSERA_INLINE vf min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
#else
TESSERA_INLINE vf max(vf a, vf b) { return a > b ? a : b; }
TESSERA_INLINE vf min(vf a, vf b) { return a < b ? a : b; }
#endif
TESSERA_INLINE vf abs(vf a) { return (vf)((vi)a & 0x7fffffff); }

TESSERA_INLINE float sum(vf v) {
#if defined(__AVX512F__)
  const auto eight = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#elif defined(__AVX2__)
  const vf eight = v;
#endif
#if defined(__AVX2__)
  const auto four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#else
  const vf four = v;
#endif
  const auto two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return two[0] + two[1];
}

// Returns the largest lane; a NaN may be ignored.
TESSERA_INLINE float highest(vf v) {
#if defined(__AVX512F__)
  v = max(v, __builtin_shuffle(v, lanes() ^ 8));
#endif
#if defined(__AVX2__)
  v = max(v, __builtin_shuffle(v, lanes() ^ 4));
#endif
  v = max(v, __builtin_shuffle(v, lanes() ^ 2));
  return v[0] > v[1] ? v[0] : v[1];
}

// 1 / d for finite d away from the ends of the range, to about one unit in the last place. (Dividing 16 lanes
// takes as long as a dozen other operations.)
TESSERA_INLINE vf reciprocal(vf d) {
#if defined(__AVX512F__)
  const vf r = (vf)_mm512_maskz_rcp14_ps((__mmask16)-1, (__m512)d);
  return r + r * (1.0f - d * r);
#else
  return 1.0f / d;
#endif
}

// e^x = mantissa * 2^whole.
struct Exponential {
  vf mantissa, whole;
};
TESSERA_INLINE Exponential reduced_exp(vf x) {
  const vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const vf n = (x * 1.44269504f + magic) - magic;
  const vf r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // log 2 in two parts, the first exact times n
  vf p = r * 1.392617612e-3f + 8.363173075e-3f;
  p = p * r + 4.166655466e-2f;
  p = p * r + 1.666657703e-1f;
  p = p * r + 0.5f;
  return {p * (r * r) + r + 1.0f, n};
}

// e^x to about one unit in the last place; 0 below -87.3 (no denormals), infinity above 88.7, NaN for NaN.
TESSERA_INLINE vf exp(vf x) {
  const Exponential e = reduced_exp(min(max(splat(-88.0f), x), splat(89.0f)));
#if defined(__AVX512F__)
  const vf scaled = (vf)_mm512_maskz_scalef_ps((__mmask16)-1, (__m512)e.mantissa, (__m512)e.whole);
#else
  // Computes 2^n in two factors, because n = 128 alone does not fit the exponent.
  const vi whole = __builtin_convertvector(e.whole, vi), half = whole >> 1;
  const vf scaled = e.mantissa * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
#endif
  const vf in_range = x < -87.3f ? vf{} : scaled;
  return x != x ? x : in_range;
}
// e^x as above, for |x| <= 87.
TESSERA_INLINE vf exp_within_range(vf x) {
  const Exponential e = reduced_exp(x);
#if defined(__AVX512F__)
  return (vf)_mm512_maskz_scalef_ps((__mmask16)-1, (__m512)e.mantissa, (__m512)e.whole);
#else
  return e.mantissa * (vf)((__builtin_convertvector(e.whole, vi) + 127) << 23);
#endif
}

// 2^r for |r| <= 1/2.
TESSERA_INLINE vf exp2_of_rest(vf r) {
  vf p = r * 1.5444884e-4f + 1.3381303e-3f;
  p = p * r + 9.6181033e-3f;
  p = p * r + 5.5503810e-2f;
  p = p * r + 0.24022651f;
  return p * (r * r) + r * 0.69314718f + 1.0f;
}

// 2^x for x < 127, to about one unit in the last place; 0 below -126 (no denormals), NaN for NaN.
TESSERA_INLINE vf exp2_below(vf x) {
#if defined(__AVX512F__)
  constexpr int kFromNearest = 8;  // x - round(x), 0 for an infinity
  const vf r = (vf)_mm512_maskz_reduce_ps((__mmask16)-1, (__m512)x, kFromNearest);
  const __mmask16 in_range = _mm512_cmp_ps_mask((__m512)x, (__m512)splat(-126.0f), _CMP_NLT_UQ);
  return (vf)_mm512_maskz_scalef_ps(in_range, (__m512)exp2_of_rest(r), (__m512)(x - r));
#else
  const vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const vf held = max(splat(-126.0f), x);
  const vf shifted = held + magic;
  const vf p = exp2_of_rest(held - (shifted - magic)) * (vf)(((vi)shifted - (vi)magic + 127) << 23);
  return x < -126.0f ? vf{} : p;
#endif
}

// e^-x clamped to the range of a float, for the functions below; NaN stays NaN.
TESSERA_INLINE vf exp_minus(vf x) { return exp_within_range(-min(splat(87.0f), max(splat(-87.0f), x))); }
TESSERA_INLINE vf sigmoid(vf x) { return reciprocal(1.0f + exp_minus(x)); }
// x sigmoid(x); 0 below -87 instead of less than 2e-36.
TESSERA_INLINE vf silu(vf x) {
  const vf y = x * sigmoid(x);
  return x < -87.0f ? vf{} : y;
}
#if defined(__AVX512F__)
// 2^x with a relative error of 2.7e-6, for x below 128: exact enough for results rounded to 14 bits or fewer.
// 0 below 2^-149, NaN for NaN.
TESSERA_INLINE vf exp2_coarse(vf x) {
  constexpr int kBehindFloor = 9;  // x - floor(x), 0 for an infinity; scalef itself uses the floor
  const vf r = (vf)_mm512_maskz_reduce_ps((__mmask16)-1, (__m512)x, kBehindFloor);
  vf p = r * 1.3534165e-2f + 5.2011468e-2f;
  p = p * r + 2.4144275e-1f;
  p = p * r + 6.9300383e-1f;
  p = p * r + 1.0000026f;
  return (vf)_mm512_maskz_scalef_ps((__mmask16)-1, (__m512)p, (__m512)x);
}
#endif

// silu(x) for results rounded to 8 bits: a relative error of up to 7e-5 on AVX-512, which saves steps.
TESSERA_INLINE vf silu_coarse(vf x) {
#if defined(__AVX512F__)
  const vf held = max(splat(-87.0f), x);
  return held * (vf)_mm512_maskz_rcp14_ps((__mmask16)-1, (__m512)(1.0f + exp2_coarse(held * -1.44269504f)));
#else
  return silu(x);
#endif
}

// silu(x) and d silu(x) / dx.
struct SiluAndSlope {
  vf value, slope;
};
TESSERA_INLINE SiluAndSlope silu_and_slope(vf x) {
  const vf e = exp_minus(x), s = reciprocal(1.0f + e), y = x * s;
  return {x < -87.0f ? vf{} : y, x < -87.0f ? vf{} : s * (1.0f + y * e)};
}
TESSERA_INLINE vf silu_slope(vf x) { return silu_and_slope(x).slope; }
// Both for bfloat16 tensors: the value as in silu_coarse, the slope with a relative error of 2e-4 plus 3e-5.
// The slope of an infinity is NaN.
TESSERA_INLINE SiluAndSlope silu_and_slope_coarse(vf x) {
#if defined(__AVX512F__)
  const vf held = max(splat(-87.0f), x), e = exp2_coarse(held * -1.44269504f);
  const vf s = (vf)_mm512_maskz_rcp14_ps((__mmask16)-1, (__m512)(1.0f + e)), y = held * s;
  return {y, s * (1.0f + y * e)};
#else
  return silu_and_slope(x);
#endif
}
// log(sigmoid(x)), with full relative precision on both sides.
TESSERA_INLINE vf log_sigmoid(vf x) {
  const vf y = exp(-abs(x));
  const vf z = y * reciprocal(y + 2.0f);  // log(1 + y) = 2 atanh(z)
  const vf t = z * z;
  vf p = t * 0.2439390808f + 0.2139856051f;
  p = p * t + 0.2862020741f;
  p = p * t + 0.3999871125f;
  p = p * t + 0.6666667903f;
  p = p * t + 2.0f;
  return min(x, vf{}) - p * z;
}

// Four numbers of a row: a quarter (64 bytes), half (32 bytes) or all of a vector.
typedef float quad __attribute__((vector_size(16)));
TESSERA_INLINE quad load_quad(const float* from) {
  quad q;
  memcpy(&q, from, sizeof q);
  return q;
}

// Lane 4 i + c of the result is rows[i * 4 + j][c], the input of a quarter of a transpose.
TESSERA_INLINE vf gather_quads(const float* from, int64_t row, int j) {
#if defined(__AVX512F__)
  __m512 v = _mm512_castps128_ps512((__m128)load_quad(from + j * row));
  v = _mm512_insertf32x4(v, (__m128)load_quad(from + (j + 4) * row), 1);
  v = _mm512_insertf32x4(v, (__m128)load_quad(from + (j + 8) * row), 2);
  return (vf)_mm512_insertf32x4(v, (__m128)load_quad(from + (j + 12) * row), 3);
#elif defined(__AVX2__)
  const __m256 v = _mm256_castps128_ps256((__m128)load_quad(from + j * row));
  return (vf)_mm256_insertf128_ps(v, (__m128)load_quad(from + (j + 4) * row), 1);
#else
  return (vf)load_quad(from + j * row);
#endif
}

// Columns 0 … 3 of W rows at a distance of `row`: out[c] has row r in lane r. Reads only 4 x W numbers.
TESSERA_INLINE void transpose_four(const float* from, int64_t row, vf (&out)[4]) {
  const vi lane = lanes(), base = lane & ~3, in = lane & 3;
  const vf z0 = gather_quads(from, row, 0), z1 = gather_quads(from, row, 1), z2 = gather_quads(from, row, 2),
           z3 = gather_quads(from, row, 3);
  // Within each group of four lanes: pairs of (z0, z1) and of (z2, z3), then pairs of those.
  const vi low = base + (in >> 1) + (in & 1) * W, high = low + 2;
  const vf a = __builtin_shuffle(z0, z1, low), b = __builtin_shuffle(z0, z1, high);
  const vf c = __builtin_shuffle(z2, z3, low), d = __builtin_shuffle(z2, z3, high);
  const vi first = base + (in & 1) + (in >> 1) * W, second = first + 2;
  out[0] = __builtin_shuffle(a, c, first);
  out[1] = __builtin_shuffle(a, c, second);
  out[2] = __builtin_shuffle(b, d, first);
  out[3] = __builtin_shuffle(b, d, second);
}

}  // namespace tessera::kernels::TESSERA_ISA
