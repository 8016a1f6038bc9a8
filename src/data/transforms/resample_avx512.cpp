// Both passes for AVX-512 with VNNI. Includes only C headers: the linker could otherwise keep this file's
// copy of a shared inline function.
//
// vpdpbusd multiplies bytes by signed bytes and adds four products into a 32-bit lane. A 24-bit weight has
// three signed digits of base 256, w = d0 + 256 d1 + 65536 d2. So three instructions compute four taps of 16
// channels exactly.
#if defined(__x86_64__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "data/transforms/resample.h"

namespace tessera::data {
namespace {

struct Sums {
  __m512i digit[3];
};

inline Sums no_sums() { return {{_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()}}; }

// Loads the same digit of four taps into every 32-bit lane.
inline __m512i digits_of(const int8_t* p) {
  int32_t four;
  memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}

inline void add(Sums& sums, __m512i bytes, const __m512i* digits) {
  for (int d = 0; d < 3; ++d) sums.digit[d] = _mm512_dpbusd_epi32(sums.digit[d], bytes, digits[d]);
}

// Returns the weighted sum, rounded and shifted down to 0 … 255 (or beyond; packing saturates).
inline __m512i finish(const Sums& s) {
  const __m512i low = _mm512_add_epi32(s.digit[0], _mm512_set1_epi32(1 << (kResampleBits - 1)));
  const __m512i rest = _mm512_add_epi32(_mm512_slli_epi32(s.digit[1], 8), _mm512_slli_epi32(s.digit[2], 16));
  return _mm512_srai_epi32(_mm512_add_epi32(low, rest), kResampleBits);
}

// ---- horizontal: a 128-bit lane contains one row's four pixels as r r r r g g g g b b b b 0 0 0 0 ----

inline __m512i quads(const uint8_t* const* rows, ptrdiff_t at) {
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1));
  auto load = [at](const uint8_t* row) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + at));
  };
  __m512i v = _mm512_castsi128_si512(load(rows[0]));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load(rows[1]));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load(rows[2]));
  v = _mm512_mask_broadcast_i32x4(v, 0xf000, load(rows[3]));
  return _mm512_shuffle_epi8(v, order);
}

// Computes one output column of four rows, one row per lane: r g b 0 as 32-bit numbers.
inline __m512i column(const uint8_t* const* rows, const ResampleAxis& axis, ptrdiff_t x) {
  const int8_t* digit[3];
  for (int d = 0; d < 3; ++d) digit[d] = axis.digits[d] + x * axis.taps;
  ptrdiff_t at = ptrdiff_t{3} * axis.first[x];
  Sums sums = no_sums();
  for (int t = 0; t < axis.taps; t += 4, at += 12) {
    const __m512i digits[3] = {digits_of(digit[0] + t), digits_of(digit[1] + t), digits_of(digit[2] + t)};
    add(sums, quads(rows, at), digits);
  }
  return finish(sums);
}

// Computes sixteen columns from `x` of four rows; columns past the last repeat it.
inline void sixteen(const uint8_t* const* rows, const ResampleAxis& axis, ptrdiff_t x, __m512i planes[3]) {
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const ptrdiff_t last = axis.outputs - 1;
  __m512i four[4];  // per lane: r r r r g g g g b b b b of four columns
  for (int i = 0; i < 4; ++i, x += 4) {
    const __m512i a = column(rows, axis, x < last ? x : last),
                  b = column(rows, axis, x + 1 < last ? x + 1 : last);
    const __m512i c = column(rows, axis, x + 2 < last ? x + 2 : last),
                  d = column(rows, axis, x + 3 < last ? x + 3 : last);
    const __m512i bytes = _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    four[i] = _mm512_shuffle_epi8(bytes, order);
  }
  const __m512i rg01 = _mm512_unpacklo_epi32(four[0], four[1]),
                rg23 = _mm512_unpacklo_epi32(four[2], four[3]);
  const __m512i b01 = _mm512_unpackhi_epi32(four[0], four[1]), b23 = _mm512_unpackhi_epi32(four[2], four[3]);
  planes[0] = _mm512_unpacklo_epi64(rg01, rg23);
  planes[1] = _mm512_unpackhi_epi64(rg01, rg23);
  planes[2] = _mm512_unpacklo_epi64(b01, b23);
}

void horizontal(const uint8_t* in, ptrdiff_t stride, int rows, const ResampleAxis& axis, uint8_t* out) {
  const ptrdiff_t width = axis.outputs;
  for (int y = 0; y < rows; y += 4) {
    const uint8_t* from[4];
    for (int r = 0; r < 4; ++r) from[r] = in + (y + r < rows ? y + r : rows - 1) * stride;
    const int count = rows - y < 4 ? rows - y : 4;
    for (ptrdiff_t x = 0; x < width; x += 16) {
      __m512i planes[3];
      sixteen(from, axis, x, planes);
      const __mmask16 keep = static_cast<__mmask16>(width - x < 16 ? (1u << (width - x)) - 1 : 0xffffu);
      for (int c = 0; c < 3; ++c) {
        const __m128i lanes[4] = {_mm512_castsi512_si128(planes[c]), _mm512_extracti32x4_epi32(planes[c], 1),
                                  _mm512_extracti32x4_epi32(planes[c], 2),
                                  _mm512_extracti32x4_epi32(planes[c], 3)};
        for (int r = 0; r < count; ++r)
          _mm_mask_storeu_epi8(out + (3 * (y + r) + c) * width + x, keep, lanes[r]);
      }
    }
  }
}

// ---- vertical: each 32-bit lane contains one byte of each of four rows ----

inline void vertical_block(const uint8_t* top, ptrdiff_t width, const ResampleAxis& axis, ptrdiff_t weight,
                           __mmask64 keep, uint8_t* out) {
  Sums sums[4] = {no_sums(), no_sums(), no_sums(), no_sums()};
  for (int t = 0; t < axis.taps; t += 4, top += 4 * width) {
    const __m512i digits[3] = {digits_of(axis.digits[0] + weight + t), digits_of(axis.digits[1] + weight + t),
                               digits_of(axis.digits[2] + weight + t)};
    const __m512i a = _mm512_maskz_loadu_epi8(keep, top), b = _mm512_maskz_loadu_epi8(keep, top + width);
    const __m512i c = _mm512_maskz_loadu_epi8(keep, top + 2 * width),
                  d = _mm512_maskz_loadu_epi8(keep, top + 3 * width);
    const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
    add(sums[0], _mm512_unpacklo_epi16(ab_low, cd_low), digits);
    add(sums[1], _mm512_unpackhi_epi16(ab_low, cd_low), digits);
    add(sums[2], _mm512_unpacklo_epi16(ab_high, cd_high), digits);
    add(sums[3], _mm512_unpackhi_epi16(ab_high, cd_high), digits);
  }
  const __m512i bytes = _mm512_packus_epi16(_mm512_packs_epi32(finish(sums[0]), finish(sums[1])),
                                            _mm512_packs_epi32(finish(sums[2]), finish(sums[3])));
  _mm512_mask_storeu_epi8(out, keep, bytes);
}

void vertical(const uint8_t* in, int width, const ResampleAxis& axis, int row, uint8_t* out) {
  const uint8_t* top = in + ptrdiff_t{axis.first[row]} * width;
  for (ptrdiff_t x = 0; x < width; x += 64) {
    const __mmask64 keep = width - x < 64 ? (__mmask64{1} << (width - x)) - 1 : ~__mmask64{0};
    vertical_block(top + x, width, axis, ptrdiff_t{row} * axis.taps, keep, out + x);
  }
}

inline __m512 divide(__m512 a, __m512 b, __m512 inverse) {
  const __m512 q = _mm512_mul_ps(a, inverse);
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, b, a), inverse, q);
}

void map(const uint8_t* in, int count, const ByteMap& map, float* out) {
  if (!map.by_fma) return resample_plain.map(in, count, map, out);
  const __m512 full = _mm512_set1_ps(255.0f), inverse_full = _mm512_set1_ps(1.0f / 255.0f);
  const __m512 std = _mm512_set1_ps(map.std), inverse_std = _mm512_set1_ps(1.0f / map.std);
  const __m512 mean = _mm512_set1_ps(map.mean);
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    const __m512 v = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
    const __m512 share = divide(v, full, inverse_full);
    _mm512_storeu_ps(out + i, divide(_mm512_sub_ps(share, mean), std, inverse_std));
  }
  for (; i < count; ++i) out[i] = map.table[in[i]];
}

}  // namespace

const ResampleForm resample_avx512 = {"avx512", horizontal, vertical, map};

}  // namespace tessera::data
#endif
