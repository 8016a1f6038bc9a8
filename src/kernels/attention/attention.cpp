// Attention forward; the formulas are in attention.h. Built once per instruction set.
#include "kernels/attention/attention_parts.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

// Queries first … first+count-1 of an item, and what has been summed for them.
struct Unit {
  const AttentionForward& call;
  AttentionForwardScratch f;
  AttentionItem item;
  int64_t first, count;
};

// Keys first … first+count-1 of the unit's head, packed.
struct KeyBlock {
  int64_t first, count;
};

void begin_unit(const Unit& unit) {
  const AttentionShape& s = unit.call.shape;
  read_rows(unit.call.q, s, unit.item, unit.first, unit.count, unit.call.q_rotary, unit.f.queries);
  memset(unit.f.sums, 0, (size_t)(unit.count * round_up16(s.dim)) * sizeof(float));
  for (int64_t r = 0; r < unit.count; ++r) unit.f.highest[r] = -__builtin_inff(), unit.f.total[r] = 0;
}

void pack(const Unit& unit, const KeyBlock& block) {
  const AttentionShape& s = unit.call.shape;
  const AttentionForwardScratch& f = unit.f;
  read_rows(unit.call.k, s, unit.item, block.first, block.count, unit.call.k_rotary, f.rows);
  transpose_scaled(f.rows, round_up16(s.dim), block.count, s.dim, nullptr, f.keys_t, round_up16(s.key_block));
  read_rows(unit.call.v, s, unit.item, block.first, block.count, {}, f.values);
}

// Turns the scores of query r of the unit into weights, moves its maximum and sum on, and corrects what was
// summed before.
void soften(const Unit& unit, const ScoreRow& row, int64_t r, int64_t own) {
  const AttentionForwardScratch& f = unit.f;
  const float gain = gain_of(row), later = unit.call.mask.later;
  vf high = splat(-__builtin_inff());
  for (int64_t c = row.columns.begin; c < row.columns.end; c += W) {
    const vf s = finish_scores(row, c);
    store(row.scores + c, s);
    high = max(s, high);
  }
  const float before = f.highest[r], here = highest(high) * gain, now = before > here ? before : here;
  const float reference = now == -__builtin_inff() ? 0 : now;  // no key yet: all weights are 0
  vf total = {};
  for (int64_t c = row.columns.begin; c < row.columns.end; c += W) {
    const vf p = exp2_below(load(row.scores + c) * gain - reference);
    total += p;
    store(row.scores + c, later == 1 ? p : keep_weights(p, c, own, later));
  }
  float factor = 1;
  if (before != now && before != -__builtin_inff()) {
    factor = exp2_below(splat(before - reference))[0];
    float* sums = f.sums + r * round_up16(unit.call.shape.dim);
    for (int64_t c = 0; c < unit.call.shape.dim; c += W) store(sums + c, load(sums + c) * factor);
  }
  f.highest[r] = now;
  f.total[r] = f.total[r] * factor + sum(total);
}

// Rows r … r+rows-1 of the unit against one block of keys.
void add_block(const Unit& unit, const KeyBlock& block, int64_t r, int64_t rows) {
  const AttentionForward& call = unit.call;
  const AttentionShape& s = call.shape;
  const AttentionForwardScratch& f = unit.f;
  const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block);
  const int64_t query = unit.first + r, position = call.mask.first_query + query - block.first;
  const auto seen = [&](int64_t row) __attribute__((always_inline)) {
    const KeyRange all = seen_from(call.mask, call.mask.first_query + query + row, s.keys);
    return clamp_range({all.begin - block.first, all.end - block.first}, 0, block.count);
  };
  const KeyRange columns = {seen(0).begin / 16 * 16, seen(rows - 1).end};
  if (columns.end <= columns.begin) return;

  Mix scores;
  scores.second = {f.queries + r * Dp, Dp, 1, f.keys_t + columns.begin, Nb, s.dim};
  scores.out = f.scores + columns.begin;
  scores.out_row = Nb;
  scores.width = round_up16(columns.end) - columns.begin;
  mix(scores, 0, rows);
  const AttentionBias& bias = call.bias;
  for (int64_t i = 0; i < rows; ++i) {
    const float* bias_row = nullptr;
    if (bias.data)
      bias_row = bias.data + unit.item.batch % bias.batches * bias.batch + unit.item.head * bias.head +
                 (query + i) * bias.query + block.first;
    soften(unit, {f.scores + i * Nb, bias_row, s.keys - block.first, columns, seen(i), s.scale * kLog2E},
           r + i, position + i);
  }
  // Nothing behind the last query has a weight where `later` is 0.
  const int64_t last = call.mask.later == 0 && position + rows < columns.end ? position + rows : columns.end;
  if (last <= columns.begin) return;
  Mix output;
  output.second = {f.scores + columns.begin, Nb, 1, f.values + columns.begin * Dp, Dp, last - columns.begin};
  output.keep = 1;
  output.out = f.sums + r * Dp;
  output.out_row = Dp;
  output.width = Dp;
  mix(output, 0, rows);
}

void end_unit(const Unit& unit, int64_t item) {
  const AttentionShape& s = unit.call.shape;
  const HeadRowsOut& out = unit.call.out;
  for (int64_t r = 0; r < unit.count; ++r) {
    const float total = unit.f.total[r], factor = total == 0 ? 0 : 1 / total;
    void* to = row_of(out, unit.item, unit.first + r);
    const float* from = unit.f.sums + r * round_up16(s.dim);
    if (out.element == Element::f32)
      put_row(from, s.dim, factor, (float*)to);
    else
      put_row(from, s.dim, factor, (bf16*)to);
    // Where there was no key the weights of backward must vanish as well: exp(-infinity).
    if (unit.call.lse)
      unit.call.lse[item * s.queries + unit.first + r] =
          total == 0 ? __builtin_inff() : unit.f.highest[r] + __builtin_log2f(total);
  }
}

void attention_forward(const AttentionForward& call, int64_t begin, int64_t end, void* scratch) {
  const AttentionShape& s = call.shape;
  Arena arena = {(char*)scratch, 0};
  const AttentionForwardScratch f = lay_out_forward(arena, s);
  const int64_t pieces = (s.queries + s.query_rows - 1) / s.query_rows;
  for (int64_t u = begin; u < end; ++u) {
    const int64_t item = u / pieces, first = u % pieces * s.query_rows;
    const int64_t count = s.queries - first < s.query_rows ? s.queries - first : s.query_rows;
    const Unit unit = {call, f, {item / s.heads, item % s.heads}, first, count};
    begin_unit(unit);
    const int64_t position = call.mask.first_query + first;
    const KeyRange from = seen_from(call.mask, position, s.keys),
                   to = seen_from(call.mask, position + count - 1, s.keys);
    for (int64_t key = from.begin; key < to.end; key += s.key_block) {
      const KeyBlock block = {key, to.end - key < s.key_block ? to.end - key : s.key_block};
      pack(unit, block);
      for (int64_t r = 0; r < count; r += kForwardRows)
        add_block(unit, block, r, count - r < kForwardRows ? count - r : kForwardRows);
    }
    end_unit(unit, item);
  }
}

}  // namespace

extern const AttentionFunctions attention;
const AttentionFunctions attention = {attention_forward, attention_backward};

}  // namespace tessera::kernels::TESSERA_ISA
