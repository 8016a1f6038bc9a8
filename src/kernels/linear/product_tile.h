// The inner loop of linear layers for any kind of word. Per-ISA.
#pragma once

#include "kernels/linear/linear_isa.h"
#include "kernels/memory.h"
#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {

#if defined(__AVX512F__)
constexpr int kProductRows = 8;  // 8 x 3 sums, 3 of B, 1 of A: 28 of 32 registers
#else
constexpr int kProductRows = 4;  // 4 x 3 sums, 3 of B, 1 of A: all 16 registers
#endif
constexpr int kProductVectors = 3;
constexpr int kPanel = kProductVectors * W;
// B is prefetched this many words of K ahead, into the second-level cache. With few rows it comes from
// memory, and the first-level cache handles too few requests at a time: without this, decoding would be a
// fifth to a third slower.
constexpr int kProductAhead = 32;

template <class T>
TESSERA_INLINE T load_words(const void* from) {
  T v;
  memcpy(&v, from, sizeof v);
  return v;
}

// Prefetches the lines that row r of a tile reads and writes.
TESSERA_INLINE void fetch_row(const EpilogueTile& t, int64_t r) {
  const auto fetch_from = [&](const void* data, Element element, int64_t row) __attribute__((always_inline)) {
    const int64_t size = element == Element::f32 ? 4 : 2;
    if (data) fetch<FetchFor::soon>((const char*)data + r * row * size, t.columns * size);
  };
  if (t.residual != t.y) fetch_from(t.residual, t.residual_element, t.residual_row);
  fetch_from(t.y, t.y_element, t.y_row);
  fetch_from(t.before.data, t.before.element, t.before.row);
  fetch_from(t.gate_before.data, t.gate_before.element, t.gate_before.row);
}

// sums += A B for the k from `begin` on, of MR rows of words.
template <class Op, int MR>
TESSERA_INLINE void add_products(typename Op::Sum (&sums)[MR][kProductVectors], const ProductTile& t,
                                 const typename Op::Word* rows, int64_t begin, int64_t end) {
  using Word = typename Op::Word;
  const Word* a = rows + begin * t.a_k;
  const Word* b = static_cast<const Word*>(t.b) + begin * kPanel;
  const Word* next = rows + MR * t.a_row;  // rows of the next tile, only prefetched here
  for (int64_t k = begin; k < end; ++k) {
    typename Op::Vector bv[kProductVectors];
#pragma GCC unroll 4
    for (int n = 0; n < kProductVectors; ++n) {
      bv[n] = load_words<typename Op::Vector>(b + n * W);
      __builtin_prefetch(b + kProductAhead * kPanel + n * W, 0, 2);
    }
    __builtin_prefetch(next + k * MR);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const typename Op::Vector av = Op::splat(a[m * t.a_row]);
#pragma GCC unroll 4
      for (int n = 0; n < kProductVectors; ++n) sums[m][n] = Op::multiply_add(sums[m][n], av, bv[n]);
    }
    a += t.a_k;
    b += kPanel;
  }
}

// Op: Word, Vector (of words), Sum (of float or int32), splat(word), multiply_add(sum, a, b).
template <class Op, int MR>
static __attribute__((noinline)) void product_rows(const ProductTile& t, int64_t row) {
  using Word = typename Op::Word;
  typename Op::Sum sums[MR][kProductVectors];
  char* out = static_cast<char*>(t.sums) + row * t.sums_row * 4;
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < kProductVectors; ++n)
      sums[m][n] = t.add     ? load_words<typename Op::Sum>(out + (m * t.sums_row + n * W) * 4)
                   : t.start ? load_words<typename Op::Sum>(static_cast<const Word*>(t.start) + n * W)
                             : typename Op::Sum{};
  const Word* a = static_cast<const Word*>(t.a) + row * t.a_row;
  // Prefetches a row after each part: all at once would exceed the number of loads in flight.
  for (int part = 0; part < MR; ++part) {
    if (t.ahead) fetch_row(*t.ahead, row + part);
    add_products<Op, MR>(sums, t, a, t.k * part / MR, t.k * (part + 1) / MR);
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < kProductVectors; ++n)
      memcpy(out + (m * t.sums_row + n * W) * 4, &sums[m][n], sizeof sums[m][n]);
}

// Handles any number of rows smaller than MR.
template <class Op, int MR>
static void product_rest(const ProductTile& t, int64_t row) {
  if (t.rows - row == MR - 1) return product_rows<Op, MR - 1>(t, row);
  if constexpr (MR > 2) product_rest<Op, MR - 1>(t, row);
}

template <class Op>
static void product(const ProductTile& t) {
  int64_t row = 0;
  for (; row + kProductRows <= t.rows; row += kProductRows) product_rows<Op, kProductRows>(t, row);
  if (row < t.rows) product_rest<Op, kProductRows>(t, row);
}

}  // namespace tessera::kernels::TESSERA_ISA
