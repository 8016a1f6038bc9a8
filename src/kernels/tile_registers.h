// The eight tile registers of AMX, for per-ISA files: sums in 0 to 5, a tile of A in 6, one of B in 7.
//
// A tile is 16 rows of 64 bytes. Rows of A hold words (two bfloat16 or four bytes) along k. B has one row per
// k and one word per column. Sums are 16 floats (or int32) for each row of A. Loads and stores are assembly
// because GCC's intrinsics do not declare that they access memory.
#pragma once

#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {

constexpr int64_t kTileSide = 16;   // rows, words of a row, columns
constexpr int64_t kTileBytes = 64;  // per row
constexpr int kTileA = 6, kTileB = 7;

// Configures all tile registers of the thread as above, and releases them. Use it once around many products,
// since it takes as long as twenty of them.
TESSERA_INLINE void set_up_tiles() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {kTileBytes, kTileBytes, kTileBytes, kTileBytes,
                              kTileBytes, kTileBytes, kTileBytes, kTileBytes};
    uint8_t rows[16] = {kTileSide, kTileSide, kTileSide, kTileSide,
                        kTileSide, kTileSide, kTileSide, kTileSide};
  } const set_up;
  static_assert(sizeof set_up == 64);
  asm volatile("ldtilecfg %0" ::"m"(set_up));
}
TESSERA_INLINE void release_tiles() { asm volatile("tilerelease"); }

// Strides in bytes; 0 gives 16 equal rows.
template <int tile>
TESSERA_INLINE void load_tile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
TESSERA_INLINE void store_tile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
TESSERA_INLINE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}

// A form defines the meaning of a word, and computes sum += A B of such words.
struct Bf16Tiles {
  template <int sum>
  TESSERA_INLINE void add_product() {
    asm volatile("tdpbf16ps %%tmm7, %%tmm6, %%tmm%c0" ::"i"(sum));
  }
};
struct ByteTiles {  // A unsigned, B signed
  template <int sum>
  TESSERA_INLINE void add_product() {
    asm volatile("tdpbusd %%tmm7, %%tmm6, %%tmm%c0" ::"i"(sum));
  }
};

// Up to 2 x 3 or 1 x 6 tiles of a product. Strides in bytes. Whole tiles of A and B must be readable, except
// the last step in k and the last rows, which are copied and padded with zeros.
struct TileProduct {
  const char* a;
  int64_t a_row;
  const char* b;
  int64_t b_k;
  int64_t rows, k;  // k in words
};

namespace tile_detail {

// Copies a partial tile: `rows` rows of `words` words, padded with zeros.
static __attribute__((noinline)) void copy_edge(const char* from, int64_t stride, int64_t rows, int64_t words,
                                                char* to) {
  for (int64_t r = 0; r < kTileSide; ++r, to += kTileBytes) {
    const vf row = r < rows ? get((const float*)(from + r * stride), words) : vf{};
    store((float*)to, row);
  }
}

struct Edge {
  alignas(64) char tile[kTileSide * kTileBytes];
};

template <int tile>
TESSERA_INLINE void load_part_of(const char* from, int64_t stride, int64_t rows, int64_t words, Edge& edge) {
  if (rows >= kTileSide && words >= kTileSide) return load_tile<tile>(from, stride);
  copy_edge(from, stride, rows, words, edge.tile);
  load_tile<tile>(edge.tile, kTileBytes);
}

// Rows of B always have all their words.
template <class Form, int N, int n = 0>
TESSERA_INLINE void add_first_row(const char* b, int64_t b_k, int64_t k, Edge& edge) {
  if constexpr (n < N) {
    load_part_of<kTileB>(b + n * kTileBytes, b_k, k, kTileSide, edge);
    Form::template add_product<n>();
    add_first_row<Form, N, n + 1>(b, b_k, k, edge);
  }
}
// Backwards: the last tile of B is still loaded.
template <class Form, int N, int n = N - 1>
TESSERA_INLINE void add_second_row(const char* b, int64_t b_k, int64_t k, Edge& edge) {
  if constexpr (n >= 0) {
    if constexpr (n < N - 1) load_part_of<kTileB>(b + n * kTileBytes, b_k, k, kTileSide, edge);
    Form::template add_product<N + n>();
    add_second_row<Form, N, n - 1>(b, b_k, k, edge);
  }
}

}  // namespace tile_detail

// Adds A B to the sums in tiles m * N + n. The products of a step keep the tile unit busy for hundreds of
// cycles; meanwhile(step) may use the vector units.
template <class Form, int M, int N, class Meanwhile>
TESSERA_INLINE void add_tiles(const TileProduct& p, Meanwhile meanwhile) {
  using namespace tile_detail;
  static_assert(M <= 2 && M * N <= 6);
  Edge a_edge, b_edge;
  const char *a = p.a, *b = p.b;
  for (int64_t k = p.k; k > 0; k -= kTileSide, a += kTileBytes, b += kTileSide * p.b_k) {
    load_part_of<kTileA>(a, p.a_row, p.rows, k, a_edge);
    add_first_row<Form, N>(b, p.b_k, k, b_edge);
    if constexpr (M == 2) {
      load_part_of<kTileA>(a + kTileSide * p.a_row, p.a_row, p.rows - kTileSide, k, a_edge);
      add_second_row<Form, N>(b, p.b_k, k, b_edge);
    }
    meanwhile((p.k - k) / kTileSide);
  }
}
template <class Form, int M, int N>
TESSERA_INLINE void add_tiles(const TileProduct& p) {
  add_tiles<Form, M, N>(p, [](int64_t) __attribute__((always_inline)){});
}

// Sets all M * N sums to zeros, or loads them from `from` with `stride` bytes between rows of tiles.
template <int M, int N, int tile = 0>
TESSERA_INLINE void zero_sums() {
  if constexpr (tile < M * N) zero_tile<tile>(), zero_sums<M, N, tile + 1>();
}
template <int M, int N, int tile = 0>
TESSERA_INLINE void load_sums(const char* from, int64_t stride) {
  if constexpr (tile < M * N) {
    load_tile<tile>(from + tile / N * kTileSide * stride + tile % N * kTileBytes, stride);
    load_sums<M, N, tile + 1>(from, stride);
  }
}
template <int M, int N, int tile = 0>
TESSERA_INLINE void store_sums(char* to, int64_t stride) {
  if constexpr (tile < M * N) {
    store_tile<tile>(to + tile / N * kTileSide * stride + tile % N * kTileBytes, stride);
    store_sums<M, N, tile + 1>(to, stride);
  }
}

}  // namespace tessera::kernels::TESSERA_ISA
