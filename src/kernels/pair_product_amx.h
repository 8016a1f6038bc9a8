// The product of pair_tiles.h on tile registers (AMX). Per-ISA; included there.
#pragma once

#include "kernels/tile_registers.h"

namespace tessera::kernels::TESSERA_ISA {

[[maybe_unused]] static void begin_pair_products() { set_up_tiles(); }
[[maybe_unused]] static void end_pair_products() { release_tiles(); }

namespace tile_detail {

// Turns one tile of A with words along its columns into rows.
static __attribute__((noinline)) void transpose_tile(const float* from, int64_t row, int64_t k, int64_t rows,
                                                     Edge& to) {
  Edge whole;
  if (k < kTileSide || rows < kTileSide) {
    copy_edge((const char*)from, row * 4, k, rows, whole.tile);
    from = (const float*)whole.tile, row = kTileSide;
  }
  for (int64_t w = 0; w < kTileSide; w += 4) {
    vf transposed[4];
    transpose_four(from + w, row, transposed);
    for (int64_t i = 0; i < 4; ++i) store((float*)to.tile + (w + i) * kTileSide, transposed[i]);
  }
}

template <int N>
TESSERA_INLINE void add_transposed(const PairProduct& p, int64_t row, int64_t rows, int64_t column) {
  Edge a_edge, b_edge;
  const float *a = p.a + row, *b = p.b + column;
  for (int64_t k = p.k; k > 0; k -= kTileSide, a += kTileSide * p.a_k, b += kTileSide * p.b_k) {
    transpose_tile(a, p.a_k, k, rows, a_edge);
    load_tile<kTileA>(a_edge.tile, kTileBytes);
    add_first_row<Bf16Tiles, N>((const char*)b, p.b_k * 4, k, b_edge);
  }
}

// Finishes sums that cannot be stored directly in the output.
static __attribute__((noinline)) void mix_sums(const PairProduct& p, const float* sums, int64_t row,
                                               int64_t rows, int64_t column, int64_t width) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; c += W) {
      float* out = p.out + (row + r) * p.out_row + column + c;
      vf value = load(sums + r * width + c);
      if (p.scale) value *= load(p.scale + column + c);
      if (p.gain != 1) value *= p.gain;
      store(out, p.keep != 0 ? value + p.keep * load(out) : value);
    }
}

// Computes M x N tiles from a row and a column on; only `rows` rows are used.
template <int M, int N>
static __attribute__((noinline)) void pair_block(const PairProduct& p, int64_t row, int64_t rows,
                                                 int64_t column) {
  char* out = (char*)(p.out + row * p.out_row + column);
  const bool in_place = rows == M * kTileSide && p.gain == 1 && !p.scale && (p.keep == 0 || p.keep == 1);
  if (in_place && p.keep == 1)
    load_sums<M, N>(out, p.out_row * 4);
  else
    zero_sums<M, N>();
  if (M == 1 && p.a_k != 1)
    add_transposed<N>(p, row, rows, column);
  else
    add_tiles<Bf16Tiles, M, N>(
        {(const char*)(p.a + row * p.a_row), p.a_row * 4, (const char*)(p.b + column), p.b_k * 4, rows, p.k});
  if (in_place) return store_sums<M, N>(out, p.out_row * 4);
  alignas(64) float sums[M * kTileSide * N * kTileSide];
  store_sums<M, N>((char*)sums, N * kTileBytes);
  mix_sums(p, sums, row, rows, column, N * kTileSide);
}

// Computes all columns of these rows, in as few blocks of about equal width as possible.
template <int M>
static void pair_rows(const PairProduct& p, int64_t row, int64_t rows, int64_t width) {
  constexpr int64_t kMost = M == 2 ? 3 : 6;
  int64_t tiles = width / kTileSide, column = 0;
  for (int64_t groups = (tiles + kMost - 1) / kMost; groups > 0; --groups) {
    const int64_t now = (tiles + groups - 1) / groups;
    if (now == 1) pair_block<M, 1>(p, row, rows, column);
    if (now == 2) pair_block<M, 2>(p, row, rows, column);
    if (now == 3) pair_block<M, 3>(p, row, rows, column);
    if constexpr (M == 1) {
      if (now == 4) pair_block<M, 4>(p, row, rows, column);
      if (now == 5) pair_block<M, 5>(p, row, rows, column);
      if (now == 6) pair_block<M, 6>(p, row, rows, column);
    }
    tiles -= now;
    column += now * kTileSide;
  }
}

}  // namespace tile_detail

// Computes all `width` columns, a multiple of 16.
[[maybe_unused]] static void pair_product(const PairProduct& p, int64_t rows, int64_t width) {
  const int64_t most = p.a_k == 1 ? 2 * kTileSide : kTileSide;
  for (int64_t row = 0; row < rows; row += most) {
    const int64_t count = rows - row < most ? rows - row : most;
    if (count > kTileSide)
      tile_detail::pair_rows<2>(p, row, count, width);
    else
      tile_detail::pair_rows<1>(p, row, count, width);
  }
}

}  // namespace tessera::kernels::TESSERA_ISA
