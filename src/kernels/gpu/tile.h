// Tiles of 64 rows in shared memory, and fragments of products of tiles on tensor cores.
#pragma once

#include "kernels/gpu/launch.h"

namespace tessera::kernels::gpu {

// Rows of a tile, threads of a block (four warps of 16 rows), padding of a row.
constexpr int kTileRows = 64, kTileThreads = 128, kTilePad = 8;

// Starts the copy of vector i of a tile of width kWidth: of row i / (kWidth / 8). Rows from `rows` and columns from `columns` on
// are zeros.
template <int kWidth>
TESSERA_DEVICE void copy_vector(bf16* to, const bf16* from, int64_t stride, int rows, int columns, int i) {
  constexpr int kVectors = kWidth / 8;
  const int r = i / kVectors, c = i % kVectors * 8;
  const bool present = r < rows && c < columns;
  copy16_async(to + r * (kWidth + kTilePad) + c, from + (present ? r * stride + c : 0), present);
}
// Starts the copy of a tile by a block of four warps.
template <int kWidth>
TESSERA_DEVICE void load_tile(bf16* to, const bf16* from, int64_t stride, int rows, int columns = kWidth) {
  for (int i = thread(); i < kTileRows * (kWidth / 8); i += kTileThreads)
    copy_vector<kWidth>(to, from, stride, rows, columns, i);
}
// Does the same for kRows rows by kThreads threads, with as few registers as possible.
template <int kWidth, int kRows, int kThreads>
TESSERA_DEVICE void load_rows(bf16* to, const bf16* from, int64_t stride, int rows, int columns) {
  TESSERA_ROLLED for (int i = thread(); i < kRows * (kWidth / 8); i += kThreads)
      copy_vector<kWidth>(to, from, stride, rows, columns, i);
}

// A (16,16) = tile[row …][column …].
TESSERA_DEVICE void fragment_a(uint32_t (&a)[4], const bf16* tile, int pitch, int row, int column) {
  load_matrices(a, tile + (row + (lane() >> 3 & 1) * 8 + (lane() & 7)) * pitch + column + (lane() >> 4) * 8);
}
// A (16,16) = the transposed tile: A[m][k] = tile[k][m].
TESSERA_DEVICE void fragment_a_transposed(uint32_t (&a)[4], const bf16* tile, int pitch, int k, int m) {
  load_matrices_transposed(a,
                           tile + (k + (lane() >> 4) * 8 + (lane() & 7)) * pitch + m + (lane() >> 3 & 1) * 8);
}
// Two B (16,8) side by side, B[k][n] = tile[n][k].
TESSERA_DEVICE void fragment_b(uint32_t (&b)[4], const bf16* tile, int pitch, int n, int k) {
  load_matrices(b, tile + (n + (lane() >> 4) * 8 + (lane() & 7)) * pitch + k + (lane() >> 3 & 1) * 8);
}
// Two B (16,8) side by side, B[k][n] = tile[k][n].
TESSERA_DEVICE void fragment_b_transposed(uint32_t (&b)[4], const bf16* tile, int pitch, int k, int n) {
  load_matrices_transposed(b,
                           tile + (k + (lane() >> 3 & 1) * 8 + (lane() & 7)) * pitch + n + (lane() >> 4) * 8);
}

// p += A B^T for this warp's 16 rows of the tile A and all 8 kTiles of B, over kWidth columns. Rows of B from `count` on may
// be left out, in groups of 16.
template <int kWidth, int kTiles>
TESSERA_DEVICE void add_scores(float (&p)[kTiles][4], const bf16* rows, const bf16* columns,
                               int count = 8 * kTiles) {
  TESSERA_UNROLL for (int d = 0; d < kWidth; d += 16) {
    uint32_t a[4], b[4];
    fragment_a(a, rows, kWidth + kTilePad, warp() * 16, d);
    TESSERA_UNROLL for (int n = 0; n < kTiles / 2; ++n) {
      if (16 * n >= count) break;
      fragment_b(b, columns, kWidth + kTilePad, 16 * n, d);
      multiply_add(p[2 * n], a, b[0], b[1]);
      multiply_add(p[2 * n + 1], a, b[2], b[3]);
    }
  }
}
// out += P V for P (16,8 kSums) and a tile V of 8 kTiles columns. P is rounded: weights[n][half] has the two numbers of this
// lane in columns 8 n … of row half of its rows. Columns of P from `count` on may be left out, in groups of 16.
template <int kTiles, int kSums>
TESSERA_DEVICE void add_weighted(float (&out)[kTiles][4], const uint32_t (&weights)[kSums][2], const bf16* v,
                                 int count = 8 * kSums) {
  TESSERA_UNROLL for (int s = 0; s < kSums / 2; ++s) {
    if (16 * s >= count) break;
    const uint32_t a[4] = {weights[2 * s][0], weights[2 * s][1], weights[2 * s + 1][0],
                           weights[2 * s + 1][1]};
    TESSERA_UNROLL for (int n = 0; n < kTiles / 2; ++n) {
      uint32_t b[4];
      fragment_b_transposed(b, v, 8 * kTiles + kTilePad, 16 * s, 16 * n);
      multiply_add(out[2 * n], a, b[0], b[1]);
      multiply_add(out[2 * n + 1], a, b[2], b[3]);
    }
  }
}
// Return the sum and the maximum over the four lanes that have a row's numbers.
TESSERA_DEVICE float quad_sum(float x) {
  x += shuffle_xor(x, 1);
  return x + shuffle_xor(x, 2);
}
TESSERA_DEVICE float quad_max(float x) {
  x = fmaxf(x, shuffle_xor(x, 1));
  return fmaxf(x, shuffle_xor(x, 2));
}

}  // namespace tessera::kernels::gpu
