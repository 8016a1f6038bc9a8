// Attention forward with products q . k on bytes (AVX512_VNNI), twice as many at a time as on pairs of
// bfloat16 (AVX512_BF16). Products of weights and v stay on pairs. Built once, on top of both.
//
//   q_i ~ a_i q'_i, k_j ~ b_j k'_j a_i, b_j by the largest magnitude of a row, |q'|, |k'| <= 127
//
// The processor multiplies unsigned by signed: q' is stored with 128 added, and the sums for key j begin with
// -128 sum_d k'_jd. A number that is not finite makes its row's scale NaN, and so the scores that depend on
// it. (Sums are multiplied by b first: |k| of 1e34 and more together with tiny q overflows.)
#include "kernels/attention/attention_pair_form.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr float kRounds = 12582912;   // 1.5 * 2^23: adding it rounds to an integer, among the low bits
constexpr float kLeastSize = 1e-35f;  // smaller numbers count as zero: the inverse must exist

// Returns words of four bytes each, quantised from four numbers of 16 rows. The rows' words of two bfloat16
// are `first` and `second`.
TESSERA_INLINE vi four_bytes(vi first, vi second, vf inverse, float zero) {
  const auto byte = [&](vi bits) __attribute__((always_inline)) {
    return (vi)((vf)bits * inverse + (kRounds + zero)) & 0xff;
  };
  const vi upper = (vi)splat_int((int32_t)0xffff0000);
  return byte(first << 16) | byte(first & upper) << 8 | byte(second << 16) << 16 | byte(second & upper) << 24;
}

// Quantises and transposes `words` (a multiple of 2) words of 16 rows to half as many words of bytes, with
// `zero` added to each number. `units` gets each row's unit; `starts`, if not null, gets -128 times the row's
// sum.
void quantise_transposed(const float* from, int64_t words, float zero, float* to, int64_t to_row,
                         float* units, float* starts) {
  __m512i most = {};
  for (int64_t w = 0; w < words; ++w)
    most = _mm512_max_epu16(most, (__m512i)(load_words(from + w * W) & 0x7fff7fff));
  const vi upper = (vi)((vu)most >> 16), lower = (vi)most & 0xffff;
  const vi bits = upper > lower ? upper : lower;
  const vf size = bits < 0x7f80 ? (vf)(bits << 16) : splat(__builtin_nanf(""));
  const vf unit = size < kLeastSize ? splat(1.0f) : size / 127.0f, inverse = 1.0f / unit;
  store(units, unit);
  vi sum = {};
  for (int64_t w = 0; w < words; w += 2, to += to_row) {
    const vi bytes = four_bytes(load_words(from + w * W), load_words(from + (w + 1) * W), inverse, zero);
    sum = ByteDot::multiply_add(sum, splat_int((int32_t)0x80808080), bytes);
    store(to, (vf)bytes);
  }
  if (starts) store(starts, (vf)-sum);
}

// Rows of a source, and their quantised form.
struct RowsToBytes {
  const HeadRows& from;
  const Rotary& table;
  float zero;
  float* to;  // (Dp / 4, row)
  int64_t row;
  float *units, *starts;
};
void read_bytes(const RowsToBytes& call, const AttentionUnit& unit, int64_t first, int64_t count) {
  const AttentionShape& s = unit.call.shape;
  const AttentionForwardScratch& f = unit.f;
  const int64_t Dp = round_up16(s.dim);
  const bool lie = lie_as_words(call.from, s.dim, call.table);
  for (int64_t r = 0; r < count; r += W) {
    if (lie && r + W <= count) {
      transpose_words((const float*)row_of(call.from, unit.item, first + r), call.from.token / 2, W, Dp / 2,
                      f.sixteen, W);
    } else {
      const int64_t left = count - r < W ? count - r : W;
      read_words(call.from, s, unit.item, first + r, left, call.table, f.rows);
      transpose_words(f.rows, Dp, left, Dp / 2, f.sixteen, W);
    }
    quantise_transposed(f.sixteen, Dp / 2, call.zero, call.to + r, call.row, call.units + r,
                        call.starts ? call.starts + r : nullptr);
  }
}

// `queries` are transposed words; `row` is the distance between the words of a query.
struct ByteForm : PairForm {
  TESSERA_INLINE float score_unit(const AttentionUnit& unit, int64_t r) { return unit.f.query_units[r]; }

  void read_queries(const AttentionUnit& unit) {
    const AttentionForward& call = unit.call;
    queries = {unit.f.queries, round_up16(unit.count)};
    read_bytes({call.q, call.q_rotary, 128, unit.f.queries, queries.row, unit.f.query_units, nullptr}, unit,
               unit.first, unit.count);
  }
  void pack_keys(const AttentionUnit& unit, const KeyBlock& block) {
    const AttentionForward& call = unit.call;
    const AttentionForwardScratch& f = unit.f;
    read_bytes(
        {call.k, call.k_rotary, 0, f.keys_t, round_up16(call.shape.key_block), f.key_units, f.key_starts},
        unit, block.first, block.count);
    pack_values(unit, block);
  }
  void scores(const AttentionUnit& unit, int64_t r, int64_t rows, const KeyRange& columns) const {
    const AttentionShape& s = unit.call.shape;
    const AttentionForwardScratch& f = unit.f;
    const int64_t Nb = round_up16(s.key_block), begin = columns.begin;
    PairProduct product = {queries.data + r, 1, f.keys_t + begin, Nb, round_up16(s.dim) / 4,
                           f.scores + begin, Nb};
    product.a_k = queries.row, product.scale = f.key_units + begin, product.start = f.key_starts + begin;
    word_product<ByteDot>(product, rows, round_up16(columns.end) - begin);
  }
};

void attention_forward(const AttentionForward& call, int64_t begin, int64_t end, void* scratch) {
  run_units<ByteForm>(call, begin, end, scratch);
}

}  // namespace

extern const AttentionForwardFunction attention_bytes;
const AttentionForwardFunction attention_bytes = attention_forward;

}  // namespace tessera::kernels::TESSERA_ISA
