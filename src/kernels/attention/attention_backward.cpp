// Attention backward in float. Built once per instruction set.
#include "kernels/attention/attention_backward_walk.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

// Rows of `out` += a b; a is transposed if its rows are contiguous.
void add_product(const Product& product, int64_t rows, float* out, int64_t width) {
  Mix sum;
  sum.second = product;
  sum.keep = 1;
  sum.out = out;
  sum.out_row = width;
  sum.width = width;
  mix(sum, 0, rows);
}

struct FloatForm {
  void pack(const BackwardHead& head, int64_t first, int64_t count) {
    const AttentionShape& s = head.call.shape;
    const AttentionBackwardScratch& b = head.b;
    const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block);
    read_rows(head.call.k, s, head.item, first, count, head.call.k_rotary, b.keys);
    transpose_scaled(b.keys, Dp, count, s.dim, nullptr, b.keys_t, Nb);
    read_rows(head.call.v, s, head.item, first, count, {}, b.rows);
    transpose_scaled(b.rows, Dp, count, s.dim, nullptr, b.values_t, Nb);
  }
  void products(const BackwardHead& head, const BackwardBlock& block) {
    const AttentionShape& s = head.call.shape;
    const AttentionBackwardScratch& b = head.b;
    const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block), from = block.columns.begin;
    read_rows(head.call.q, s, head.item, block.query, block.rows, head.call.q_rotary, b.queries);
    read_rows(head.call.dout, s, head.item, block.query, block.rows, {}, b.douts);
    Mix products;
    products.second = {b.queries, Dp, 1, b.keys_t + from, Nb, s.dim};
    products.out = b.weights + from;
    products.out_row = Nb;
    products.width = round_up16(block.columns.end - from);
    mix(products, 0, block.rows);
    products.second = {b.douts, Dp, 1, b.values_t + from, Nb, s.dim};
    products.out = b.dscores + from;
    mix(products, 0, block.rows);
  }
  void add_gradients(const BackwardHead& head, const BackwardBlock& block) {
    const AttentionBackwardScratch& b = head.b;
    const int64_t Dp = round_up16(head.call.shape.dim), Nb = round_up16(head.call.shape.key_block);
    const int64_t from = block.columns.begin, many = block.columns.end - from, rows = block.rows;
    add_product({b.weights + from, 1, Nb, b.douts, Dp, rows}, many, b.dvalues + from * Dp, Dp);
    add_product({b.dscores + from, 1, Nb, b.queries, Dp, rows}, many, b.dkeys + from * Dp, Dp);
    add_product({b.dscores + from, Nb, 1, b.keys + from * Dp, Dp, many}, rows, b.dqueries + block.query * Dp,
                Dp);
  }
};

}  // namespace

void attention_backward(const AttentionBackward& call, int64_t begin, int64_t end, float* dbias,
                        void* scratch) {
  run_backward<FloatForm>(call, begin, end, dbias, scratch);
}

}  // namespace tessera::kernels::TESSERA_ISA
