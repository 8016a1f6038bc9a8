// Attention forward in float; the formulas are in attention.h. Built once per instruction set.
#include "kernels/attention/attention_units.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

// True if rows can be read in place as floats, without rotation.
bool lie_as_floats(const HeadRows& rows, const Rotary& table) {
  return rows.element == Element::f32 && !table.cos;
}

struct FloatForm {
  Matrix queries = {};

  TESSERA_INLINE float score_unit(const AttentionUnit&, int64_t) { return 1; }
  TESSERA_INLINE float weight_unit() { return 1; }
  TESSERA_INLINE vf weights(vf x) { return exp2_below(x); }
  TESSERA_INLINE vf numbers(vf p) { return p; }
  TESSERA_INLINE vf rounded(vf p) { return p; }
  TESSERA_INLINE void put_weights(float* row, int64_t c, vf p) { store(row + c, p); }
  float weigh(const ScoreRow& row, float gain, float reference) const {
    return weigh_row(*this, row, gain, reference);
  }

  void read_queries(const AttentionUnit& unit) {
    const AttentionForward& call = unit.call;
    if (lie_as_floats(call.q, call.q_rotary)) {
      queries = {(const float*)row_of(call.q, unit.item, unit.first), call.q.token};
      return;
    }
    read_rows(call.q, call.shape, unit.item, unit.first, unit.count, call.q_rotary, unit.f.queries);
    queries = {unit.f.queries, round_up16(call.shape.dim)};
  }
  void pack_keys(const AttentionUnit& unit, const KeyBlock& block) {
    const AttentionShape& s = unit.call.shape;
    const AttentionForwardScratch& f = unit.f;
    const HeadRows& k = unit.call.k;
    Matrix keys = {f.rows, round_up16(s.dim)};
    if (lie_as_floats(k, unit.call.k_rotary))
      keys = {(const float*)row_of(k, unit.item, block.first), k.token};
    else
      read_rows(k, s, unit.item, block.first, block.count, unit.call.k_rotary, f.rows);
    transpose_scaled(keys.data, keys.row, block.count, s.dim, nullptr, f.keys_t, round_up16(s.key_block));
    read_rows(unit.call.v, s, unit.item, block.first, block.count, {}, f.values);
  }
  void scores(const AttentionUnit& unit, int64_t r, int64_t rows, const KeyRange& columns) const {
    const AttentionShape& s = unit.call.shape;
    const int64_t Nb = round_up16(s.key_block);
    Mix scores;
    scores.second = {queries.data + r * queries.row, queries.row, 1,
                     unit.f.keys_t + columns.begin,  Nb,          s.dim};
    scores.out = unit.f.scores + columns.begin;
    scores.out_row = Nb;
    scores.width = round_up16(columns.end) - columns.begin;
    mix(scores, 0, rows);
  }
  void add_values(const AttentionUnit& unit, int64_t r, int64_t rows, const KeyRange& keys) const {
    const AttentionShape& s = unit.call.shape;
    const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block);
    Mix output;
    output.second = {unit.f.scores + keys.begin,      Nb, 1,
                     unit.f.values + keys.begin * Dp, Dp, keys.end - keys.begin};
    output.keep = 1;
    output.out = unit.f.sums + r * Dp;
    output.out_row = Dp;
    output.width = Dp;
    mix(output, 0, rows);
  }
};

void attention_forward(const AttentionForward& call, int64_t begin, int64_t end, void* scratch) {
  run_units<FloatForm>(call, begin, end, scratch);
}

}  // namespace

extern const AttentionFunctions attention;
const AttentionFunctions attention = {attention_forward, attention_backward};

}  // namespace tessera::kernels::TESSERA_ISA
