// The forward pass on pairs of bfloat16: rotated q and k, v and the weights are rounded to bfloat16, sums are
// floats. Per-ISA, for processors that multiply such pairs.
#pragma once

#include "kernels/attention/attention_words.h"

namespace tessera::kernels::TESSERA_ISA {

// True if products can read the rows in place: whole words of bfloat16, without rotation.
TESSERA_INLINE bool lie_as_words(const HeadRows& rows, int64_t dim, const Rotary& table) {
  const int64_t apart = rows.token | rows.head | rows.batch | (int64_t)((uintptr_t)rows.data / 2);
  return rows.element == Element::bf16 && !table.cos && dim == round_up16(dim) && apart % 2 == 0;
}

// Reads rows token … token+count-1 of an item, rotated, as rows of Dp bfloat16 at the start of rows of Dp
// floats.
[[maybe_unused]] static void read_words(const HeadRows& from, const AttentionShape& s,
                                        const AttentionItem& item, int64_t token, int64_t count,
                                        const Rotary& table, float* rows) {
  const int64_t Dp = round_up16(s.dim);
  read_rows(from, s, item, token, count, table, rows);
  narrow_rows(NumberRows<float>{rows, Dp, count, Dp}, nullptr, rows, Dp);
}

// The same, transposed; in place if possible, except for the last few rows, because whole vectors are read.
[[maybe_unused]] static void transpose_rows_of_words(const HeadRows& from, const AttentionShape& s,
                                                     const AttentionItem& item, const KeyBlock& block,
                                                     const Rotary& table, float* rows, float* to) {
  const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block), words = (s.dim + 1) / 2;
  const int64_t whole = lie_as_words(from, s.dim, table) ? block.count / W * W : 0;
  transpose_words((const float*)row_of(from, item, block.first), from.token / 2, whole, words, to, Nb);
  if (whole == block.count) return;
  read_words(from, s, item, block.first + whole, block.count - whole, table, rows);
  transpose_words(rows, Dp, block.count - whole, words, to + whole, Nb);
}

struct PairForm {
  WordRows queries = {};

  TESSERA_INLINE float score_unit(const AttentionUnit&, int64_t) { return 1; }
  TESSERA_INLINE float weight_unit() { return 1; }
  TESSERA_INLINE vf weights(vf x) { return exp2_coarse(x); }
  TESSERA_INLINE vf numbers(vf p) { return to_bf16(p); }
  TESSERA_INLINE vf rounded(vf p) { return to_bf16(p); }
  // Writes eight words over sixteen scores, before the scores that are still to be read.
  TESSERA_INLINE void put_weights(float* row, int64_t c, vf p) { store((bf16*)row + c, p); }

  // Two vectors at a time, summed while they are multiplied.
  float weigh(const ScoreRow& row, float gain, float reference) const {
    const KeyRange columns = row.columns;
    const int64_t width = round_up16(columns.end - columns.begin), twos = width / (2 * W) * 2 * W;
    const __m512bh ones = (__m512bh)splat_int(0x3f803f80);
    vf total = {};
    for (int64_t c = columns.begin; c < columns.begin + twos; c += 2 * W) {
      const vf first = weights(load(row.scores + c) * gain - reference);
      const vf second = weights(load(row.scores + c + W) * gain - reference);
      const __m512bh both = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
      total = (vf)_mm512_dpbf16_ps((__m512)total, both, ones);
      memcpy((bf16*)row.scores + c, &both, sizeof both);
    }
    if (twos < width) {
      const int64_t c = columns.begin + twos;
      const vf last = rounded(weights(load(row.scores + c) * gain - reference));
      total += last;
      put_weights(row.scores, c, last);
    }
    return sum(total);
  }

  void read_queries(const AttentionUnit& unit) {
    const AttentionForward& call = unit.call;
    if (lie_as_words(call.q, call.shape.dim, call.q_rotary)) {
      queries = {(const float*)row_of(call.q, unit.item, unit.first), call.q.token / 2};
      return;
    }
    read_words(call.q, call.shape, unit.item, unit.first, unit.count, call.q_rotary, unit.f.queries);
    queries = {unit.f.queries, round_up16(call.shape.dim)};
  }
  void pack_keys(const AttentionUnit& unit, const KeyBlock& block) {
    const AttentionShape& s = unit.call.shape;
    const AttentionForwardScratch& f = unit.f;
    transpose_rows_of_words(unit.call.k, s, unit.item, block, unit.call.k_rotary, f.rows, f.keys_t);
    pack_values(unit, block);
  }
  void pack_values(const AttentionUnit& unit, const KeyBlock& block) {
    const AttentionShape& s = unit.call.shape;
    const AttentionForwardScratch& f = unit.f;
    const HeadRows& v = unit.call.v;
    const void* at = row_of(v, unit.item, block.first);
    const int64_t Dp = round_up16(s.dim);
    if (v.element == Element::f32)
      pair_up_rows(NumberRows<float>{(const float*)at, v.token, block.count, s.dim}, 1, f.values, Dp);
    else
      pair_up_rows({(const bf16*)at, v.token, block.count, s.dim}, f.values, Dp);
  }
  void scores(const AttentionUnit& unit, int64_t r, int64_t rows, const KeyRange& columns) const {
    word_scores(unit, queries, r, rows, columns);
  }
  void add_values(const AttentionUnit& unit, int64_t r, int64_t rows, const KeyRange& keys) const {
    add_word_values(unit, r, rows, keys, nullptr);
  }
};

}  // namespace tessera::kernels::TESSERA_ISA
