// Attention on pairs of bfloat16 (AMX, AVX512_BF16), forward and backward: rotated q and k, v, the weights,
// do and the gradients of the scores are rounded to bfloat16, sums are floats. Built once for each, on top of
// AVX-512.
#include "kernels/attention/attention_backward_walk.h"
#include "kernels/attention/attention_pair_form.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

struct BackwardPairForm {
  void pack(const BackwardHead& head, int64_t first, int64_t count) {
    const AttentionShape& s = head.call.shape;
    const AttentionBackwardScratch& b = head.b;
    const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block), words = (s.dim + 1) / 2;
    read_rows(head.call.k, s, head.item, first, count, head.call.k_rotary, b.keys);
    const NumberRows<float> keys = {b.keys, Dp, count, Dp};
    pair_up_rows(keys, 1, b.key_pairs, Dp);
    narrow_rows(keys, nullptr, b.keys, Dp);
    transpose_words(b.keys, Dp, count, words, b.keys_t, Nb);
    transpose_rows_of_words(head.call.v, s, head.item, {first, count}, {}, b.rows, b.values_t);
  }
  void products(const BackwardHead& head, const BackwardBlock& block) {
    const AttentionShape& s = head.call.shape;
    const AttentionBackwardScratch& b = head.b;
    const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block), words = (s.dim + 1) / 2;
    const int64_t from = block.columns.begin, width = round_up16(block.columns.end - from);
    read_rows(head.call.q, s, head.item, block.query, block.rows, head.call.q_rotary, b.queries);
    read_rows(head.call.dout, s, head.item, block.query, block.rows, {}, b.douts);
    const NumberRows<float> queries = {b.queries, Dp, block.rows, Dp}, douts = {b.douts, Dp, block.rows, Dp};
    pair_up_rows(queries, 1, b.query_pairs, Dp), pair_up_rows(douts, 1, b.dout_pairs, Dp);
    narrow_rows(queries, nullptr, b.queries, Dp), narrow_rows(douts, nullptr, b.douts, Dp);
    pair_product({b.queries, Dp, b.keys_t + from, Nb, words, b.weights + from, Nb}, block.rows, width);
    pair_product({b.douts, Dp, b.values_t + from, Nb, words, b.dscores + from, Nb}, block.rows, width);
  }
  void add_gradients(const BackwardHead& head, const BackwardBlock& block) {
    const AttentionBackwardScratch& b = head.b;
    const int64_t Dp = round_up16(head.call.shape.dim), Nb = round_up16(head.call.shape.key_block);
    const int64_t from = block.columns.begin, many = block.columns.end - from, pairs = (block.rows + 1) / 2;
    const NumberRows<float> dscores = {b.dscores + from, Nb, block.rows, many};
    pair_up_rows(NumberRows<float>{b.weights + from, Nb, block.rows, many}, 1, b.weight_pairs + from, Nb);
    pair_up_rows(dscores, 1, b.dscore_pairs + from, Nb);
    narrow_rows(dscores, nullptr, b.dscores + from, Nb);
    PairProduct sum = {b.weight_pairs + from, 1, b.dout_pairs, Dp, pairs, b.dvalues + from * Dp, Dp};
    sum.keep = 1, sum.a_k = Nb;
    pair_product(sum, many, Dp);
    sum.a = b.dscore_pairs + from, sum.b = b.query_pairs, sum.out = b.dkeys + from * Dp;
    pair_product(sum, many, Dp);
    pair_product({b.dscores + from, Nb, b.key_pairs + from / 2 * Dp, Dp, (many + 1) / 2,
                  b.dqueries + block.query * Dp, Dp, 1},
                 block.rows, Dp);
  }
};

void attention_forward(const AttentionForward& call, int64_t begin, int64_t end, void* scratch) {
  begin_pair_products();
  run_units<PairForm>(call, begin, end, scratch);
  end_pair_products();
}
void attention_backward_pairs(const AttentionBackward& call, int64_t begin, int64_t end, float* dbias,
                              void* scratch) {
  begin_pair_products();
  run_backward<BackwardPairForm>(call, begin, end, dbias, scratch);
  end_pair_products();
}

}  // namespace

extern const AttentionFunctions attention_pairs;
const AttentionFunctions attention_pairs = {attention_forward, attention_backward_pairs};

}  // namespace tessera::kernels::TESSERA_ISA
