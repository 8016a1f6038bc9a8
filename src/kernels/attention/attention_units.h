// The forward pass's loop over queries and blocks of keys, for any form of the two products. Per-ISA.
#pragma once

#include "kernels/attention/attention_parts.h"
#include "kernels/memory.h"

namespace tessera::kernels::TESSERA_ISA {

// Queries first … first+count-1 of an item, and their sums so far.
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

// Rows of heads that are far apart in memory, prefetched during other work: a few rows per query of a unit.
// (All at once would exceed the number of loads that the processor keeps in flight.)
struct RowsAhead {
  const void* data = nullptr;
  int64_t row_bytes = 0, bytes = 0;  // distance between rows, size of a row
  int64_t count = 0, each = 0;       // rows in total, rows per query

  void fetch_for(int64_t query) const {
    const int64_t begin = query * each, end = begin + each < count ? begin + each : count;
    for (int64_t r = begin; r < end; ++r) fetch<FetchFor::later>((const char*)data + r * row_bytes, bytes);
  }
};
// Rows first … first+count-1 of an item, spread over `queries` queries.
template <class Pointer>
static RowsAhead rows_ahead(const HeadView<Pointer>& view, int64_t dim, const AttentionItem& item,
                            int64_t first, int64_t count, int64_t queries) {
  constexpr int64_t kMost = 4;  // rows per query; the rest is not prefetched
  const int64_t size = view.element == Element::f32 ? 4 : 2, each = (count + queries - 1) / queries;
  return {row_of(view, item, first), view.token * size, dim * size, count, each < kMost ? each : kMost};
}

// The rows after a block of keys: the next block; or the next unit's queries and first block, and this unit's
// output rows.
struct UnitAhead {
  RowsAhead queries, keys, values, out;
  void fetch_for(int64_t query) const {
    queries.fetch_for(query), keys.fetch_for(query), values.fetch_for(query), out.fetch_for(query);
  }
};

// Applies bias and mask to a row; returns its largest score.
TESSERA_INLINE float finish_row(const ScoreRow& row) {
  vf high = splat(-__builtin_inff());
  const auto finish_until = [&](int64_t c, int64_t end) __attribute__((always_inline)) {
    for (; c < end; c += W) {
      const vf s = finish_scores(row, c);
      store(row.scores + c, s);
      high = max(s, high);
    }
  };
  // Columns without bias and mask, where scores are plain products.
  KeyRange plain = {round_up16(row.seen.begin), row.seen.end / W * W};
  plain = clamp_range(row.bias ? KeyRange{} : plain, row.columns.begin, row.columns.end / W * W);
  finish_until(row.columns.begin, plain.begin);
  for (int64_t c = plain.begin; c < plain.end; c += W) high = max(load(row.scores + c), high);
  finish_until(plain.end > plain.begin ? plain.end : plain.begin, row.columns.end);
  return highest(high);
}

// Replaces a row's scores by weights p = 2^(gain s - reference); returns their sum in units of weight_unit().
template <class Form>
TESSERA_INLINE float weigh_row(const Form& form, const ScoreRow& row, float gain, float reference) {
  vf total = {};
  for (int64_t c = row.columns.begin; c < row.columns.end; c += W) {
    const vf p = form.weights(load(row.scores + c) * gain - reference);
    total += form.numbers(p);
    form.put_weights(row.scores, c, p);
  }
  return sum(total);
}
// The same if keys after the query's `own` are scaled by `future_weight` after the softmax.
template <class Form>
TESSERA_INLINE float weigh_and_mask_row(const Form& form, const ScoreRow& row, float gain, float reference,
                                        int64_t own, float future_weight) {
  vf total = {};
  for (int64_t c = row.columns.begin; c < row.columns.end; c += W) {
    const vf p = form.numbers(form.weights(load(row.scores + c) * gain - reference));
    total += p;
    form.put_weights(row.scores, c, form.rounded(keep_weights(p, c, own, future_weight)));
  }
  return sum(total);
}

// Converts the scores of query r of the unit into weights, updates its maximum and sum, and corrects the
// earlier sums.
template <class Form>
static void soften(const Form& form, const AttentionUnit& unit, const ScoreRow& row, int64_t r, int64_t own) {
  const AttentionForwardScratch& f = unit.f;
  const float gain = gain_of(row), future_weight = unit.call.mask.future_weight;
  const float before = f.highest[r], here = finish_row(row) * gain, now = before > here ? before : here;
  const float reference = now == -__builtin_inff() ? 0 : now;  // no key yet: all weights are 0
  const float total = future_weight == 1 ? form.weigh(row, gain, reference)
                                         : weigh_and_mask_row(form, row, gain, reference, own, future_weight);
  float factor = 1;
  if (before != now && before != -__builtin_inff()) {
    factor = exp2_below(splat(before - reference))[0];
    float* sums = f.sums + r * round_up16(unit.call.shape.dim);
    for (int64_t c = 0; c < unit.call.shape.dim; c += W) store(sums + c, load(sums + c) * factor);
  }
  f.highest[r] = now;
  f.total[r] = f.total[r] * factor + total * form.weight_unit();
}

// Adds rows r … r+rows-1 of the unit against one block of keys.
template <class Form>
static void add_block(const Form& form, const AttentionUnit& unit, const KeyBlock& block,
                      const UnitAhead& ahead, int64_t r, int64_t rows) {
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
  const AttentionBias& bias = call.bias;
  for (int64_t i = 0; i < rows; ++i) {
    const float* bias_row = nullptr;
    if (bias.data)
      bias_row = bias.data + unit.item.batch % bias.batches * bias.batch + unit.item.head * bias.head +
                 (query + i) * bias.query + block.first;
    // Never 0, even if the unit of tiny scores vanishes: 0 times the infinity of a masked key is NaN.
    const float unit_gain = s.scale * kLog2E * form.score_unit(unit, r + i),
                gain = unit_gain < __FLT_MIN__ ? __FLT_MIN__ : unit_gain;
    soften(
        form, unit,
        {unit.f.scores + i * round_up16(s.key_block), bias_row, s.keys - block.first, columns, seen(i), gain},
        r + i, position + i);
    ahead.fetch_for(r + i);
  }
  // If `future_weight` is 0, keys after the last query get weight 0.
  const int64_t last =
      call.mask.future_weight == 0 && position + rows < columns.end ? position + rows : columns.end;
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
    // If there was no key, exp(-infinity) makes the weights of backward vanish too.
    if (unit.call.lse)
      unit.call.lse[item * s.queries + unit.first + r] =
          total == 0 ? __builtin_inff() : unit.f.highest[r] + __builtin_log2f(total);
  }
}

// The units of a call, in order.
struct AttentionUnits {
  const AttentionForward& call;
  AttentionForwardScratch f;
  int64_t pieces;  // per item

  AttentionUnit unit(int64_t u) const {
    const AttentionShape& s = call.shape;
    const int64_t item = u / pieces, first = u % pieces * s.query_rows;
    const int64_t count = s.queries - first < s.query_rows ? s.queries - first : s.query_rows;
    return {call, f, {item / s.heads, item % s.heads}, first, count};
  }
  // Returns the range of keys that any of a unit's queries sees.
  KeyRange keys(const AttentionUnit& unit) const {
    const int64_t position = call.mask.first_query + unit.first;
    return {seen_from(call.mask, position, call.shape.keys).begin,
            seen_from(call.mask, position + unit.count - 1, call.shape.keys).end};
  }
  KeyBlock block(const KeyRange& keys, int64_t first) const {
    const int64_t left = keys.end - first, most = call.shape.key_block;
    return {first, left < most ? left : most};
  }
  // Returns the rows after the block that ends at `key`; `last`: no unit u+1 follows.
  UnitAhead ahead(const AttentionUnit& unit, const KeyRange& keys, int64_t key, int64_t u, bool last) const {
    const int64_t dim = call.shape.dim;
    UnitAhead ahead;
    const auto add_keys = [&](const AttentionItem& item, const KeyBlock& block) {
      ahead.keys = rows_ahead(call.k, dim, item, block.first, block.count, unit.count);
      ahead.values = rows_ahead(call.v, dim, item, block.first, block.count, unit.count);
    };
    if (key < keys.end) {
      add_keys(unit.item, block(keys, key));
      return ahead;
    }
    ahead.out = rows_ahead(call.out, dim, unit.item, unit.first, unit.count, unit.count);
    if (last) return ahead;
    const AttentionUnit next = this->unit(u + 1);
    const KeyRange its = this->keys(next);
    ahead.queries = rows_ahead(call.q, dim, next.item, next.first, next.count, unit.count);
    if (its.begin < its.end) add_keys(next.item, block(its, its.begin));
    return ahead;
  }
};

// A Form works on the rows in the unit's working memory:
//   read_queries(unit), pack_keys(unit, block)   prepare the inputs of the products
//   scores(unit, r, rows, columns)               rows of products q . k, in units of score_unit
//   score_unit(unit, r)                          the unit of row r
//   weights(x)                                   p = 2^x, in units of weight_unit()
//   numbers(weights), rounded(numbers)           the stored numbers of weights, and back
//   put_weights(row, column, weights)            overwrites the scores
//   weigh(row, gain, reference)                  weigh_row, or a faster equivalent
//   add_values(unit, r, rows, keys)              sums += weights V
template <class Form>
static void run_units(const AttentionForward& call, int64_t begin, int64_t end, void* scratch) {
  const AttentionShape& s = call.shape;
  Arena arena = {(char*)scratch, 0};
  const AttentionUnits units = {call, lay_out_forward(arena, s),
                                (s.queries + s.query_rows - 1) / s.query_rows};
  Form form;
  for (int64_t u = begin; u < end; ++u) {
    const AttentionUnit unit = units.unit(u);
    const int64_t count = unit.count;
    form.read_queries(unit);
    memset(unit.f.sums, 0, (size_t)(count * round_up16(s.dim)) * sizeof(float));
    for (int64_t r = 0; r < count; ++r) unit.f.highest[r] = -__builtin_inff(), unit.f.total[r] = 0;
    const KeyRange keys = units.keys(unit);
    for (int64_t key = keys.begin; key < keys.end; key += s.key_block) {
      const KeyBlock block = units.block(keys, key);
      const UnitAhead ahead = units.ahead(unit, keys, key + block.count, u, u + 1 == end);
      form.pack_keys(unit, block);
      for (int64_t r = 0; r < count; r += kForwardRows)
        add_block(form, unit, block, ahead, r, count - r < kForwardRows ? count - r : kForwardRows);
    }
    end_unit(unit, u / units.pieces);
  }
}

}  // namespace tessera::kernels::TESSERA_ISA
