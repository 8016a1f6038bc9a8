// Tile products (AMX) of bfloat16 pairs and of int8 quadruples for linear layers. Built once, on top of
// AVX-512.
#include "kernels/linear/product_tile.h"
#include "kernels/pair_tiles.h"
#include "kernels/tile_registers.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

static_assert(kProductVectors * W == kPanel && W == kTileSide);

template <class Form, int M>
__attribute__((noinline)) void product_of(const ProductTile& t, int64_t row, char* sums, int64_t stride) {
  constexpr int N = kProductVectors;
  if (t.add)
    load_sums<M, N>(sums, stride);
  else if (t.start)
    load_sums<M, N>(static_cast<const char*>(t.start), 0);
  else
    zero_sums<M, N>();
  const char* a = static_cast<const char*>(t.a) + row * t.a_row * 4;
  const EpilogueTile* other = row == 0 ? t.meanwhile : nullptr;
  const int64_t steps = (t.k + kTileSide - 1) / kTileSide;
  add_tiles<Form, M, N>(
      {a, t.a_row * 4, static_cast<const char*>(t.b), kPanel * 4, t.rows - row, t.k},
      [&](int64_t step) __attribute__((always_inline)) {
        if (other) t.epilogue(*other, other->rows * step / steps, other->rows * (step + 1) / steps);
      });
  store_sums<M, N>(sums, stride);
}

// Computes the last rows of a partial tile through a buffer.
template <class Form>
void product_of_last(const ProductTile& t, int64_t row, char* sums, int64_t stride) {
  alignas(64) char whole[kTileSide * kPanel * 4];
  const int64_t rows = t.rows - row;
  for (int64_t r = 0; t.add && r < rows; ++r) memcpy(whole + r * kPanel * 4, sums + r * stride, kPanel * 4);
  product_of<Form, 1>(t, row, whole, kPanel * 4);
  for (int64_t r = 0; r < rows; ++r) memcpy(sums + r * stride, whole + r * kPanel * 4, kPanel * 4);
}

template <class Form>
void tile_product(const ProductTile& t) {
  const int64_t stride = t.sums_row * 4;
  for (int64_t row = 0; row < t.rows;) {
    char* sums = static_cast<char*>(t.sums) + row * stride;
    const int64_t left = t.rows - row;
    if (left >= 2 * kTileSide)
      product_of<Form, 2>(t, row, sums, stride), row += 2 * kTileSide;
    else if (left >= kTileSide)
      product_of<Form, 1>(t, row, sums, stride), row += kTileSide;
    else
      product_of_last<Form>(t, row, sums, stride), row = t.rows;
  }
}

static_assert(ProductRows::kTransposed == kTileSide);

}  // namespace

extern const LinearTiles linear_tiles;
const LinearTiles linear_tiles = {
    tile_product<Bf16Tiles>,
    tile_product<ByteTiles>,
    {2 * kTileSide, kTileSide, true, begin_pair_products, end_pair_products, transpose_words}};

}  // namespace tessera::kernels::TESSERA_ISA
