// The walk of the forward pass over queries and blocks of keys, for any form of the two products. Per-ISA.
#pragma once

#include "kernels/attention/attention_parts.h"

namespace tessera::kernels::TESSERA_ISA {

// Queries first … first+count-1 of an item, and what has been summed for them.
struct AttentionUnit {
  const AttentionForward& call;
  AttentionForwardScratch f;
  AttentionItem item;
  int64_t first, count;
};

// Keys first … first+count-1 of the unit's head, packed.
struct KeyBlock {
  int64_t first, count;
};

// Turns the scores of query r of the unit into weights, moves its maximum and sum on, and corrects what was
// summed before.
template <class Form>
static void soften(const Form& form, const AttentionUnit& unit, const ScoreRow& row, int64_t r, int64_t own) {
  const AttentionForwardScratch& f = unit.f;
  const float gain = gain_of(row), later = unit.call.mask.later;
  vf high = splat(-__builtin_inff());
  for (int64_t c = row.columns.begin; c < row.columns.end; c += W) {
    const vf s = finish_scores(row, c);
    if (row.bias || !sees_all(row, c)) store(row.scores + c, s);
    high = max(s, high);
  }
  const float before = f.highest[r], here = highest(high) * gain, now = before > here ? before : here;
  const float reference = now == -__builtin_inff() ? 0 : now;  // no key yet: all weights are 0
  vf total = {};
  for (int64_t c = row.columns.begin; c < row.columns.end; c += W) {
    const vf p = form.weights(load(row.scores + c) * gain - reference);
    total += form.numbers(p);
    if (later == 1)
      form.put_weights(row.scores, c, p);
    else
      form.put_weights(row.scores, c, form.rounded(keep_weights(form.numbers(p), c, own, later)));
  }
  float factor = 1;
  if (before != now && before != -__builtin_inff()) {
    factor = exp2_below(splat(before - reference))[0];
    float* sums = f.sums + r * round_up16(unit.call.shape.dim);
    for (int64_t c = 0; c < unit.call.shape.dim; c += W) store(sums + c, load(sums + c) * factor);
  }
  f.highest[r] = now;
  f.total[r] = f.total[r] * factor + sum(total) * form.weight_unit();
}

// Rows r … r+rows-1 of the unit against one block of keys.
template <class Form>
static void add_block(const Form& form, const AttentionUnit& unit, const KeyBlock& block, int64_t r,
                      int64_t rows) {
  const AttentionForward& call = unit.call;
  const AttentionShape& s = call.shape;
  const int64_t query = unit.first + r, position = call.mask.first_query + query - block.first;
  const auto seen = [&](int64_t row) __attribute__((always_inline)) {
    const KeyRange all = seen_from(call.mask, call.mask.first_query + query + row, s.keys);
    return clamp_range({all.begin - block.first, all.end - block.first}, 0, block.count);
  };
  const KeyRange columns = {seen(0).begin / 16 * 16, seen(rows - 1).end};
  if (columns.end <= columns.begin) return;
  form.scores(unit, r, rows, columns);
  // Not 0, where the unit of tiny scores vanishes: 0 times the infinity of a masked key is no number.
  const float unit_gain = s.scale * kLog2E * form.score_unit(),
              gain = unit_gain < __FLT_MIN__ ? __FLT_MIN__ : unit_gain;
  const AttentionBias& bias = call.bias;
  for (int64_t i = 0; i < rows; ++i) {
    const float* bias_row = nullptr;
    if (bias.data)
      bias_row = bias.data + unit.item.batch % bias.batches * bias.batch + unit.item.head * bias.head +
                 (query + i) * bias.query + block.first;
    soften(
        form, unit,
        {unit.f.scores + i * round_up16(s.key_block), bias_row, s.keys - block.first, columns, seen(i), gain},
        r + i, position + i);
  }
  // Nothing behind the last query has a weight where `later` is 0.
  const int64_t last = call.mask.later == 0 && position + rows < columns.end ? position + rows : columns.end;
  if (last > columns.begin) form.add_values(unit, r, rows, {columns.begin, last});
}

[[maybe_unused]] static void end_unit(const AttentionUnit& unit, int64_t item) {
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

// Form, with the rows in the unit's working memory:
//   read_queries(unit), pack_keys(unit, block)   make ready what the products take
//   scores(unit, r, rows, columns)               rows of products q . k, in units of score_unit()
//   weights(x)                                   p = 2^x, in units of weight_unit()
//   numbers(weights), rounded(numbers)           the numbers that are kept of them, and back
//   put_weights(row, column, weights)            over the scores
//   add_values(unit, r, rows, keys)              sums += weights V
template <class Form>
static void run_units(const AttentionForward& call, int64_t begin, int64_t end, void* scratch) {
  const AttentionShape& s = call.shape;
  Arena arena = {(char*)scratch, 0};
  const AttentionForwardScratch f = lay_out_forward(arena, s);
  const int64_t pieces = (s.queries + s.query_rows - 1) / s.query_rows;
  Form form;
  for (int64_t u = begin; u < end; ++u) {
    const int64_t item = u / pieces, first = u % pieces * s.query_rows;
    const int64_t count = s.queries - first < s.query_rows ? s.queries - first : s.query_rows;
    const AttentionUnit unit = {call, f, {item / s.heads, item % s.heads}, first, count};
    form.read_queries(unit);
    memset(f.sums, 0, (size_t)(count * round_up16(s.dim)) * sizeof(float));
    for (int64_t r = 0; r < count; ++r) f.highest[r] = -__builtin_inff(), f.total[r] = 0;
    const int64_t position = call.mask.first_query + first;
    const KeyRange from = seen_from(call.mask, position, s.keys),
                   to = seen_from(call.mask, position + count - 1, s.keys);
    for (int64_t key = from.begin; key < to.end; key += s.key_block) {
      const KeyBlock block = {key, to.end - key < s.key_block ? to.end - key : s.key_block};
      form.pack_keys(unit, block);
      for (int64_t r = 0; r < count; r += kForwardRows)
        add_block(form, unit, block, r, count - r < kForwardRows ? count - r : kForwardRows);
    }
    end_unit(unit, item);
  }
}

}  // namespace tessera::kernels::TESSERA_ISA
