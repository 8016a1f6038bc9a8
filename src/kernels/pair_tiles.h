// Small matrix products over words of two 16-bit numbers, for per-ISA files of processors that multiply such
// pairs: bfloat16 (AMX_BF16, AVX512_BF16) or integers (AVX512_VNNI).
//
// A is read one word at a time, B and the output one vector at a time along contiguous columns. A word of A
// holds two neighbours of a row (of a column if A is transposed), a word of B two rows of a column. Row
// strides count floats, the storage type of words.
#pragma once

#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {

// out = keep * out + gain * scale[n] * sum_k a[m][k] . b[k][n]; if keep is 0, `out` is not read.
struct PairProduct {
  const float* a;
  int64_t a_row;
  const float* b;
  int64_t b_k, k;
  float* out;
  int64_t out_row;
  float keep = 0, gain = 1;
  const float* scale = nullptr;  // null: 1
  int64_t a_k = 1;
  // Initial sums of the columns, integer words; null: zeros. Not for tiles.
  const float* start = nullptr;
};

TESSERA_INLINE vi load_words(const float* from) { return (vi)load(from); }

}  // namespace tessera::kernels::TESSERA_ISA

#if defined(__AMX_BF16__)
#include "kernels/pair_product_amx.h"
#endif

namespace tessera::kernels::TESSERA_ISA {

#if !defined(__AMX_BF16__)
// Called around products, in each thread.
[[maybe_unused]] static void begin_pair_products() {}
[[maybe_unused]] static void end_pair_products() {}

TESSERA_INLINE vi splat_word(const float* from) {
  int32_t word;
  memcpy(&word, from, sizeof word);
  return splat_int(word);
}

#if defined(__AVX512BF16__)
struct PairDot {
  using Sum = vf;
  TESSERA_INLINE vf multiply_add(vf sum, vi a, vi b) { return dot_pairs(sum, a, b); }
  TESSERA_INLINE vf number(vf sum) { return sum; }
};
#else
struct PairDot {
  using Sum = vi;
  TESSERA_INLINE vi multiply_add(vi sum, vi a, vi b) {
    return (vi)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
  }
  TESSERA_INLINE vf number(vi sum) { return __builtin_convertvector(sum, vf); }
};
#endif

#if defined(__AVX512VNNI__)
// Four bytes per word: unsigned in A, signed in B.
struct ByteDot {
  using Sum = vi;
  TESSERA_INLINE vi multiply_add(vi sum, vi a, vi b) {
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
  }
  TESSERA_INLINE vf number(vi sum) { return __builtin_convertvector(sum, vf); }
};
#endif

template <class Dot, int MR, int NV>
static __attribute__((noinline)) void pair_tile(const PairProduct& p, int64_t row, int64_t column) {
  using Sum = typename Dot::Sum;
  Sum sums[MR][NV];
#pragma GCC unroll 4
  for (int n = 0; n < NV; ++n) {
    const Sum start = p.start ? (Sum)load(p.start + column + n * W) : Sum{};
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) sums[m][n] = start;
  }
  const float *a = p.a + row * p.a_row, *b = p.b + column;
  for (int64_t k = 0; k < p.k; ++k, a += p.a_k, b += p.b_k) {
    vi bv[NV];
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) bv[n] = load_words(b + n * W);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const vi av = splat_word(a + m * p.a_row);
#pragma GCC unroll 4
      for (int n = 0; n < NV; ++n) sums[m][n] = Dot::multiply_add(sums[m][n], av, bv[n]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) {
      float* out = p.out + (row + m) * p.out_row + column + n * W;
      vf value = Dot::number(sums[m][n]);
      if (p.scale) value *= load(p.scale + column + n * W);
      if (p.gain != 1) value *= p.gain;
      store(out, p.keep != 0 ? value + p.keep * load(out) : value);
    }
}

template <class Dot, int MR>
TESSERA_INLINE void pair_rows(const PairProduct& p, int64_t row, int64_t width) {
  int64_t vectors = width / W, column = 0;
  for (int64_t groups = (vectors + 2) / 3; groups > 0; --groups) {
    const int64_t now = (vectors + groups - 1) / groups;
    if (now == 3)
      pair_tile<Dot, MR, 3>(p, row, column);
    else if (now == 2)
      pair_tile<Dot, MR, 2>(p, row, column);
    else
      pair_tile<Dot, MR, 1>(p, row, column);
    vectors -= now;
    column += now * W;
  }
}

// Computes all `width` columns, a multiple of 16.
template <class Dot>
static void word_product(const PairProduct& p, int64_t rows, int64_t width) {
  int64_t row = 0;
  for (; row + 8 <= rows; row += 8) pair_rows<Dot, 8>(p, row, width);
  if (rows - row >= 4) pair_rows<Dot, 4>(p, row, width), row += 4;
  if (rows - row >= 2) pair_rows<Dot, 2>(p, row, width), row += 2;
  if (rows - row >= 1) pair_rows<Dot, 1>(p, row, width);
}
[[maybe_unused]] static void pair_product(const PairProduct& p, int64_t rows, int64_t width) {
  word_product<PairDot>(p, rows, width);
}

#endif

#if defined(__AVX512BF16__)
// Rows of numbers at a distance of `row`.
template <class T>
struct NumberRows {
  const T* data;
  int64_t row, count, width;
};

// Returns rows start … of rows in memory, such as the mLSTM's in walking order.
template <class T, class Rows>
TESSERA_INLINE NumberRows<T> rows_of(const Rows& from, int64_t start, int64_t count, int64_t width) {
  return {(const T*)from.data + start * from.stride, from.stride, count, width};
}

// Writes bfloat16 at the start of the rows of `to`, times scale[r] if given, padded with zeros to a multiple
// of 16. `to` may be the memory of the input rows.
template <class T>
static void narrow_rows(const NumberRows<T>& from, const float* scale, float* to, int64_t to_row) {
  for (int64_t r = 0; r < from.count; ++r)
    for (int64_t c = 0; c < from.width; c += W) {
      const vf v = get(from.data + r * from.row + c, from.width - c);
      store((bf16*)(to + r * to_row) + c, scale ? v * scale[r] : v);
    }
}

// Returns words of whole vectors of two rows.
TESSERA_INLINE vf pair_up(const bf16* first, const bf16* second) {
  __m256i low, high;
  memcpy(&low, first, sizeof low), memcpy(&high, second, sizeof high);
  const vi lower = (vi)_mm512_maskz_cvtepu16_epi32((__mmask16)-1, low);
  return (vf)(lower | (vi)_mm512_maskz_cvtepu16_epi32((__mmask16)-1, high) << 16);
}

// Writes words of two rows, padded with zeros to a multiple of 16. If the last row has no partner, zeros take
// its place.
[[maybe_unused]] static void pair_up_rows(const NumberRows<bf16>& from, float* to, int64_t to_row) {
  const bf16* at = from.data;
  for (int64_t r = 0; r < from.count; r += 2, at += 2 * from.row, to += to_row)
    for (int64_t c = 0; c < from.width; c += W) {
      const int64_t left = from.width - c;
      if (left >= W && r + 1 < from.count)
        store(to + c, pair_up(at + c, at + from.row + c));
      else
        store(to + c, pair_up(get(at + c, left), r + 1 < from.count ? get(at + from.row + c, left) : vf{}));
    }
}

// The same for numbers times `gain`.
template <class T>
static void pair_up_rows(const NumberRows<T>& from, float gain, float* to, int64_t to_row) {
  for (int64_t r = 0; r < from.count; r += 2, to += to_row)
    for (int64_t c = 0; c < from.width; c += W) {
      const T* at = from.data + r * from.row + c;
      const int64_t left = from.width - c;
      const vf second = r + 1 < from.count ? to_bf16(get(at + from.row, left) * gain) : vf{};
      store(to + c, pair_up(to_bf16(get(at, left) * gain), second));
    }
}
#endif

// Transposes the words of `count` rows at a distance of from_row: to[w][r] for w < words. Entries from
// `count` on are arbitrary.
[[maybe_unused]] static void transpose_words(const float* from, int64_t from_row, int64_t count,
                                             int64_t words, float* to, int64_t to_row) {
  for (int64_t r = 0; r < count; r += W)
    for (int64_t w = 0; w < words; w += 4) {
      vf transposed[4];
      transpose_four(from + r * from_row + w, from_row, transposed);
      for (int64_t i = 0; i < 4 && w + i < words; ++i) store(to + (w + i) * to_row + r, transposed[i]);
    }
}

}  // namespace tessera::kernels::TESSERA_ISA
