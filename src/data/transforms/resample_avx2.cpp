// Both passes for AVX2. Includes only C headers: the linker could otherwise keep this file's copy of a shared
// inline function.
//
// Weights have 24 bits, the multiplier 16. So each weight is split into w = high * 4096 + low, and the sums
// of both halves are exact in 32 bits. One vpmaddwd computes two taps of eight channels.
#if defined(__x86_64__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "data/transforms/resample.h"

namespace tessera::data {
namespace {

inline __m256i madd_add(__m256i sum, __m256i a, __m256i b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

// Returns high * 4096 + low, rounded and shifted down to 0 … 255 (or beyond; packing saturates).
inline __m256i finish(__m256i high, __m256i low) {
  const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, kLowBits), low);
  return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << (kResampleBits - 1))), kResampleBits);
}

// Loads two weights at p into every 32-bit lane.
inline __m256i weight_pair(const int16_t* p) {
  int32_t two;
  memcpy(&two, p, sizeof two);
  return _mm256_set1_epi32(two);
}

// Loads four weights at p: the first two into every 32-bit lane of the lower half, the others into the upper
// half.
inline __m256i weight_quad(const int16_t* p) {
  const __m256i spread = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6,
                                          7, 4, 5, 6, 7, 4, 5, 6, 7);
  int64_t four;
  memcpy(&four, p, sizeof four);
  return _mm256_shuffle_epi8(_mm256_set1_epi64x(four), spread);
}

// Loads four pixels (12 bytes) as 16-bit numbers: lower half r0 r1 g0 g1 b0 b1 0 0, upper half the same of
// pixels 2 and 3.
inline __m256i pixel_quad(const uint8_t* p) {
  const __m256i spread = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1, 9,
                                          -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), spread);
}

// Computes one output column of kRows rows: r g b 0 as 32-bit numbers each.
template <int kRows>
inline void column(const uint8_t* in, ptrdiff_t stride, const ResampleAxis& axis, ptrdiff_t x, __m128i* rgb) {
  const uint8_t* pixel = in + ptrdiff_t{3} * axis.first[x];
  const int16_t* high = axis.high + x * axis.taps;
  const int16_t* low = axis.low + x * axis.taps;
  __m256i high_sum[kRows], low_sum[kRows];
  for (int r = 0; r < kRows; ++r) high_sum[r] = low_sum[r] = _mm256_setzero_si256();
  for (int t = 0; t < axis.taps; t += 4, pixel += 12) {
    const __m256i high_weights = weight_quad(high + t), low_weights = weight_quad(low + t);
    for (int r = 0; r < kRows; ++r) {
      const __m256i pixels = pixel_quad(pixel + r * stride);
      high_sum[r] = madd_add(high_sum[r], pixels, high_weights);
      low_sum[r] = madd_add(low_sum[r], pixels, low_weights);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high_sum[r], kLowBits), low_sum[r]);
    const __m128i whole = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    rgb[r] = _mm_srai_epi32(_mm_add_epi32(whole, _mm_set1_epi32(1 << (kResampleBits - 1))), kResampleBits);
  }
}

// Packs four columns of one row as r r r r g g g g b b b b.
inline __m128i planes_of(__m128i p0, __m128i p1, __m128i p2, __m128i p3) {
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm_shuffle_epi8(_mm_packus_epi16(_mm_packs_epi32(p0, p1), _mm_packs_epi32(p2, p3)), order);
}

template <int kRows>
void horizontal_rows(const uint8_t* in, ptrdiff_t stride, const ResampleAxis& axis, uint8_t* out) {
  const ptrdiff_t width = axis.outputs;
  __m128i columns[4][kRows];
  for (ptrdiff_t x = 0; x < width; x += 4) {
    const int count = width - x < 4 ? static_cast<int>(width - x) : 4;
    for (int i = 0; i < 4; ++i) column<kRows>(in, stride, axis, x + (i < count ? i : count - 1), columns[i]);
    for (int r = 0; r < kRows; ++r) {
      alignas(16) uint8_t bytes[16];
      _mm_store_si128(reinterpret_cast<__m128i*>(bytes),
                      planes_of(columns[0][r], columns[1][r], columns[2][r], columns[3][r]));
      uint8_t* to = out + r * 3 * width + x;
      if (count == 4) {
        memcpy(to, bytes, 4);
        memcpy(to + width, bytes + 4, 4);
        memcpy(to + 2 * width, bytes + 8, 4);
      } else {
        for (int c = 0; c < 3; ++c) memcpy(to + c * width, bytes + 4 * c, static_cast<size_t>(count));
      }
    }
  }
}

void horizontal(const uint8_t* in, ptrdiff_t stride, int rows, const ResampleAxis& axis, uint8_t* out) {
  const ptrdiff_t out_stride = ptrdiff_t{3} * axis.outputs;
  int y = 0;
  for (; y + 4 <= rows; y += 4) horizontal_rows<4>(in + y * stride, stride, axis, out + y * out_stride);
  for (; y < rows; ++y) horizontal_rows<1>(in + y * stride, stride, axis, out + y * out_stride);
}

// Computes 32 bytes of an output row. For an odd number of taps, the second row of the last pair has weight
// 0.
inline void vertical_block(const uint8_t* top, ptrdiff_t width, int pairs, const int16_t* high,
                           const int16_t* low, uint8_t* out) {
  __m256i high_sum[4], low_sum[4];
  for (int i = 0; i < 4; ++i) high_sum[i] = low_sum[i] = _mm256_setzero_si256();
  const __m256i zero = _mm256_setzero_si256();
  for (int p = 0; p < pairs; ++p, top += 2 * width) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(top));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(top + width));
    const __m256i lower = _mm256_unpacklo_epi8(a, b), upper = _mm256_unpackhi_epi8(a, b);
    const __m256i high_weights = weight_pair(high + 2 * p), low_weights = weight_pair(low + 2 * p);
    const __m256i four[4] = {_mm256_unpacklo_epi8(lower, zero), _mm256_unpackhi_epi8(lower, zero),
                             _mm256_unpacklo_epi8(upper, zero), _mm256_unpackhi_epi8(upper, zero)};
    for (int i = 0; i < 4; ++i) {
      high_sum[i] = madd_add(high_sum[i], four[i], high_weights);
      low_sum[i] = madd_add(low_sum[i], four[i], low_weights);
    }
  }
  __m256i done[4];
  for (int i = 0; i < 4; ++i) done[i] = finish(high_sum[i], low_sum[i]);
  const __m256i bytes =
      _mm256_packus_epi16(_mm256_packs_epi32(done[0], done[1]), _mm256_packs_epi32(done[2], done[3]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
}

void vertical(const uint8_t* in, int width, const ResampleAxis& axis, int row, uint8_t* out) {
  if (width < 32) return resample_plain.vertical(in, width, axis, row, out);
  const uint8_t* top = in + ptrdiff_t{axis.first[row]} * width;
  const int16_t* high = axis.high + ptrdiff_t{row} * axis.taps;
  const int16_t* low = axis.low + ptrdiff_t{row} * axis.taps;
  const int pairs = (axis.count[row] + 1) / 2;  // taps is even: an extra row exists and has weight 0
  ptrdiff_t x = 0;
  for (; x + 32 <= width; x += 32) vertical_block(top + x, width, pairs, high, low, out + x);
  if (x < width) vertical_block(top + width - 32, width, pairs, high, low, out + width - 32);
}

inline __m256 divide(__m256 a, __m256 b, __m256 inverse) {
  const __m256 q = _mm256_mul_ps(a, inverse);
  return _mm256_fmadd_ps(_mm256_fnmadd_ps(q, b, a), inverse, q);
}

void map(const uint8_t* in, int count, const ByteMap& map, float* out) {
  if (!map.by_fma) return resample_plain.map(in, count, map, out);
  const __m256 full = _mm256_set1_ps(255.0f), inverse_full = _mm256_set1_ps(1.0f / 255.0f);
  const __m256 std = _mm256_set1_ps(map.std), inverse_std = _mm256_set1_ps(1.0f / map.std);
  const __m256 mean = _mm256_set1_ps(map.mean);
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + i));
    const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    const __m256 share = divide(v, full, inverse_full);
    _mm256_storeu_ps(out + i, divide(_mm256_sub_ps(share, mean), std, inverse_std));
  }
  for (; i < count; ++i) out[i] = map.table[in[i]];
}

}  // namespace

const ResampleForm resample_avx2 = {"avx2", horizontal, vertical, map};

}  // namespace tessera::data
#endif
