// Small matrix products on tiles that stay in registers, for per-ISA files.
//
// A is read one number at a time with any two strides, so a transposed A costs nothing. B and the output are
// accessed one vector at a time along contiguous columns. B must be readable up to a multiple of W columns;
// an output is written only up to its width.
#pragma once

#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {

#if defined(__AVX512F__)
constexpr int kTileRows = 8;  // 8 x 3 sums, 3 of B, 1 of A: 28 of 32 registers
#else
constexpr int kTileRows = 4;  // 4 x 3 sums, 3 of B, 1 of A: all 16 registers
#endif
constexpr int kTileVectors = 3;

// sum_k a[m * a_row + k * a_k] * b[k * b_k + n]
struct Product {
  const float* a = nullptr;
  int64_t a_row = 0, a_k = 0;
  const float* b = nullptr;
  int64_t b_k = 0;
  int64_t k = 0;  // 0: no product
};

template <int MR, int NV>
TESSERA_INLINE void accumulate(vf (&sums)[MR][NV], const float* a, int64_t a_row, int64_t a_k, const float* b,
                               int64_t b_k, int64_t count) {
  for (int64_t k = 0; k < count; ++k) {
    vf bv[NV];
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) bv[n] = load(b + n * W);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const vf av = splat(a[m * a_row]);
#pragma GCC unroll 4
      for (int n = 0; n < NV; ++n) sums[m][n] += av * bv[n];
    }
    a += a_k;
    b += b_k;
  }
}

// The part of the second factor's k that a row needs: all, up to the row itself, or from the row on.
enum class Part { all, lower, upper };

// out = keep * out + row_scale[m] * (gain * (init_row[m] * init_vector[n] + first) + second)
// A null row_scale or init_row drops its factor; if keep is 0, `out` is not read.
struct Mix {
  Product first, second;
  float gain = 1;
  const float* init_row = nullptr;
  const float* init_vector = nullptr;  // readable up to a multiple of W
  Part part = Part::all;               // of `second`
  const float* row_scale = nullptr;
  float keep = 0;
  float* out = nullptr;
  int64_t out_row = 0;
  int64_t width = 0;
};

template <int MR, int NV>
static __attribute__((noinline)) void mix_tile(const Mix& mix, int64_t row, int64_t column) {
  vf sums[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) sums[m][n] = vf{};
  if (mix.init_row) {
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
      for (int n = 0; n < NV; ++n)
        sums[m][n] = mix.init_row[row + m] * load(mix.init_vector + column + n * W);
  }
  if (mix.first.k) {
    const Product& p = mix.first;
    accumulate<MR, NV>(sums, p.a + row * p.a_row, p.a_row, p.a_k, p.b + column, p.b_k, p.k);
  }
  if (mix.gain != 1) {
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
      for (int n = 0; n < NV; ++n) sums[m][n] *= mix.gain;
  }
  if (mix.second.k) {
    const Product& p = mix.second;
    const int64_t from = mix.part == Part::upper ? row : 0;
    const int64_t to = mix.part == Part::lower && row + MR < p.k ? row + MR : p.k;
    accumulate<MR, NV>(sums, p.a + row * p.a_row + from * p.a_k, p.a_row, p.a_k, p.b + column + from * p.b_k,
                       p.b_k, to - from);
  }
  const int64_t last = mix.width - column - (NV - 1) * W;  // lanes of the last vector
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    float* out = mix.out + (row + m) * mix.out_row + column;
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) {
      const bool whole = n < NV - 1 || last >= W;
      vf value = sums[m][n];
      if (mix.row_scale) value *= mix.row_scale[row + m];
      if (mix.keep != 0) value += mix.keep * (whole ? load(out + n * W) : load_part(out + n * W, last));
      if (whole)
        store(out + n * W, value);
      else
        store_part(out + n * W, value, last);
    }
  }
}

template <int MR>
TESSERA_INLINE void mix_rows(const Mix& mix, int64_t row) {
  int64_t vectors = (mix.width + W - 1) / W, column = 0;
  for (int64_t groups = (vectors + kTileVectors - 1) / kTileVectors; groups > 0; --groups) {
    const int64_t now = (vectors + groups - 1) / groups;
    if (now == 3)
      mix_tile<MR, 3>(mix, row, column);
    else if (now == 2)
      mix_tile<MR, 2>(mix, row, column);
    else
      mix_tile<MR, 1>(mix, row, column);
    vectors -= now;
    column += now * W;
  }
}

// Computes rows [begin, end) of the output.
[[maybe_unused]] static void mix(const Mix& call, int64_t begin, int64_t end) {
  int64_t row = begin;
  for (; row + kTileRows <= end; row += kTileRows) mix_rows<kTileRows>(call, row);
  if (kTileRows > 4 && end - row >= 4) mix_rows<4>(call, row), row += 4;
  if (end - row >= 2) mix_rows<2>(call, row), row += 2;
  if (end - row >= 1) mix_rows<1>(call, row);
}

// The lower triangle of a product: out[m][n] = init_row[m] * init_vector[n] + product for n <= m, and 0 for
// larger n up to the next multiple of W that a tile touches. Columns are computed up to a multiple of W.
struct Triangle {
  Product product;
  const float* init_row = nullptr;
  const float* init_vector = nullptr;
  float* out = nullptr;
  int64_t out_row = 0;
  float* row_sum = nullptr;  // += the sum of each row, or null
};

template <int MR, int NV>
static __attribute__((noinline)) void triangle_tile(const Triangle& t, int64_t row, int64_t column) {
  vf sums[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n)
      sums[m][n] = t.init_row ? t.init_row[row + m] * load(t.init_vector + column + n * W) : vf{};
  const Product& p = t.product;
  accumulate<MR, NV>(sums, p.a + row * p.a_row, p.a_row, p.a_k, p.b + column, p.b_k, p.k);
  const bool diagonal = column + NV * W > row + 1;
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    vf total = {};
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) {
      vf value = sums[m][n];
      if (diagonal) value = lanes() + (int32_t)(column + n * W) <= (int32_t)(row + m) ? value : vf{};
      total += value;
      store(t.out + (row + m) * t.out_row + column + n * W, value);
    }
    if (t.row_sum) t.row_sum[row + m] += sum(total);
  }
}

template <int MR>
TESSERA_INLINE void triangle_rows(const Triangle& t, int64_t row) {
  int64_t vectors = (row + MR + W - 1) / W, column = 0;
  for (int64_t groups = (vectors + kTileVectors - 1) / kTileVectors; groups > 0; --groups) {
    const int64_t now = (vectors + groups - 1) / groups;
    if (now == 3)
      triangle_tile<MR, 3>(t, row, column);
    else if (now == 2)
      triangle_tile<MR, 2>(t, row, column);
    else
      triangle_tile<MR, 1>(t, row, column);
    vectors -= now;
    column += now * W;
  }
}

[[maybe_unused]] static void triangle(const Triangle& call, int64_t begin, int64_t end) {
  int64_t row = begin;
  for (; row + kTileRows <= end; row += kTileRows) triangle_rows<kTileRows>(call, row);
  if (kTileRows > 4 && end - row >= 4) triangle_rows<4>(call, row), row += 4;
  if (end - row >= 2) triangle_rows<2>(call, row), row += 2;
  if (end - row >= 1) triangle_rows<1>(call, row);
}

// to[c][r] = scale[r] * from[r][c] for r < rows, c < columns, padded in r with zeros to a multiple of 16. A
// null scale counts as 1. `to` has rows of to_row floats; `from` is read only inside its rows and columns.
[[maybe_unused]] static __attribute__((noinline)) void transpose_scaled(const float* from, int64_t from_row,
                                                                        int64_t rows, int64_t columns,
                                                                        const float* scale, float* to,
                                                                        int64_t to_row) {
  const int64_t padded = (rows + 15) / 16 * 16;
  for (int64_t r = 0; r < padded; r += W) {
    const int64_t left = rows - r;
    const vf weight = !scale      ? splat(1.0f)
                      : left >= W ? load(scale + r)
                      : left > 0  ? load_part(scale + r, left)
                                  : vf{};
    int64_t c = 0;
    if (left >= W)
      for (; c + 4 <= columns; c += 4) {
        vf column[4];
        transpose_four(from + r * from_row + c, from_row, column);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) store(to + (c + i) * to_row + r, column[i] * weight);
      }
    for (; c < columns; ++c)  // the rest at the two edges, number by number
      for (int64_t i = 0; i < W; ++i)
        to[c * to_row + r + i] = i < left ? from[(r + i) * from_row + c] * weight[i] : 0;
  }
}

}  // namespace tessera::kernels::TESSERA_ISA
