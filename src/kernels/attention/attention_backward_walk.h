// The backward pass's loop over heads, blocks of keys and rows of queries, for any form of the products.
// Per-ISA. The formulas are in attention.h.
#pragma once

#include "kernels/attention/attention_parts.h"

namespace tessera::kernels::TESSERA_ISA {

struct BackwardHead {
  const AttentionBackward& call;
  AttentionBackwardScratch b;
  AttentionItem item;
  const float* lse;
  float* dbias;  // data of the head's first query, or null
};

// Queries query … query+rows-1, and columns of the key block that begins at first_key.
struct BackwardBlock {
  int64_t first_key, query, rows;
  KeyRange columns;  // counted from the block's first key; begin is a multiple of 16
};

[[maybe_unused]] static void clear(float* rows, int64_t count) {
  memset(rows, 0, (size_t)count * sizeof(float));
}

// Computes do_i . o_i for all queries, through the buffers of a block.
[[maybe_unused]] static void dot_outputs(const BackwardHead& head) {
  const AttentionShape& s = head.call.shape;
  const AttentionBackwardScratch& b = head.b;
  const int64_t Dp = round_up16(s.dim);
  for (int64_t q = 0; q < s.queries; q += kBackwardRows) {
    const int64_t rows = s.queries - q < kBackwardRows ? s.queries - q : kBackwardRows;
    read_rows(head.call.out, s, head.item, q, rows, {}, b.queries);
    read_rows(head.call.dout, s, head.item, q, rows, {}, b.douts);
    for (int64_t r = 0; r < rows; ++r) b.dout_out[q + r] = dot(b.queries + r * Dp, b.douts + r * Dp, s.dim);
  }
}

// Converts one query's products q . k into weights, and do . v into gradients of the scores.
[[maybe_unused]] static void differentiate(const BackwardHead& head, const ScoreRow& row, float* dscores,
                                           int64_t query, int64_t own, float* dbias) {
  const float gain = gain_of(row), future_weight = head.call.mask.future_weight, lse = head.lse[query],
              dout_out = head.b.dout_out[query];
  for (int64_t c = row.columns.begin; c < row.columns.end; c += W) {
    const vf p = exp2_below(finish_scores(row, c) * gain - lse);
    const vf kept = future_weight == 1 ? p : keep_weights(p, c, own, future_weight);
    const vf ds = kept * load(dscores + c) - p * dout_out;
    store(row.scores + c, kept);
    store(dscores + c, ds);
    if (dbias) add_to(dbias + c, ds, row.columns.end - c);
  }
}

// Adds the gradients of queries q … q+rows-1 and keys first … first+count-1.
template <class Form>
static void add_block(Form& form, const BackwardHead& head, int64_t first, int64_t count, int64_t q,
                      int64_t rows) {
  const AttentionBackward& call = head.call;
  const AttentionShape& s = call.shape;
  const AttentionBackwardScratch& b = head.b;
  const int64_t Nb = round_up16(s.key_block);
  const int64_t position = call.mask.first_query + q - first;
  const auto seen = [&](int64_t row) __attribute__((always_inline)) {
    const KeyRange all = seen_from(call.mask, call.mask.first_query + q + row, s.keys);
    return clamp_range({all.begin - first, all.end - first}, 0, count);
  };
  const KeyRange columns = {seen(0).begin / 16 * 16, seen(rows - 1).end};
  if (columns.end <= columns.begin) return;
  const BackwardBlock block = {first, q, rows, columns};
  form.products(head, block);
  const AttentionBias& bias = call.bias;
  for (int64_t i = 0; i < rows; ++i) {
    const float* bias_row = nullptr;
    if (bias.data)
      bias_row = bias.data + head.item.batch % bias.batches * bias.batch + head.item.head * bias.head +
                 (q + i) * bias.query + first;
    differentiate(head, {b.weights + i * Nb, bias_row, s.keys - first, columns, seen(i), s.scale * kLog2E},
                  b.dscores + i * Nb, q + i, position + i,
                  head.dbias ? head.dbias + (q + i) * s.keys + first : nullptr);
  }
  form.add_gradients(head, block);
}

// Applies the inverse rotation to gradients, scales and stores them.
[[maybe_unused]] static void write_rows(const BackwardHead& head, float* from, int64_t first, int64_t count,
                                        const Rotary& table, float scale, const HeadRowsOut& to) {
  const AttentionShape& s = head.call.shape;
  const int64_t Dp = round_up16(s.dim);
  rotate_rows(from, Dp, count, table, head.item.head, first, -1);
  for (int64_t r = 0; r < count; ++r) {
    void* at = row_of(to, head.item, first + r);
    if (to.element == Element::f32)
      put_row(from + r * Dp, s.dim, scale, (float*)at);
    else
      put_row(from + r * Dp, s.dim, scale, (bf16*)at);
  }
}

// A Form works on the rows in the head's working memory:
//   pack(head, first, count)       prepares a block of keys
//   products(head, block)          b.weights = q . k and b.dscores = do . v
//   add_gradients(head, block)     += to b.dvalues, b.dkeys and b.dqueries, from weights and dscores
template <class Form>
static void backward_head(const BackwardHead& head) {
  const AttentionBackward& call = head.call;
  const AttentionShape& s = call.shape;
  Form form;
  dot_outputs(head);
  clear(head.b.dqueries, s.queries * round_up16(s.dim));
  for (int64_t first = 0; first < s.keys; first += s.key_block) {
    const int64_t count = s.keys - first < s.key_block ? s.keys - first : s.key_block;
    form.pack(head, first, count);
    clear(head.b.dkeys, count * round_up16(s.dim));
    clear(head.b.dvalues, count * round_up16(s.dim));
    for (int64_t q = 0; q < s.queries; q += kBackwardRows)
      add_block(form, head, first, count, q, s.queries - q < kBackwardRows ? s.queries - q : kBackwardRows);
    write_rows(head, head.b.dkeys, first, count, call.k_rotary, s.scale, call.dk);
    write_rows(head, head.b.dvalues, first, count, {}, 1, call.dv);
  }
  write_rows(head, head.b.dqueries, 0, s.queries, call.q_rotary, s.scale, call.dq);
}

template <class Form>
static void run_backward(const AttentionBackward& call, int64_t begin, int64_t end, float* dbias,
                         void* scratch) {
  const AttentionShape& s = call.shape;
  Arena arena = {(char*)scratch, 0};
  const AttentionBackwardScratch b = lay_out_backward(arena, s);
  for (int64_t i = begin; i < end; ++i) {
    const AttentionItem item = {i / s.heads, i % s.heads};
    float* to = nullptr;
    if (dbias) {
      const int64_t heads = call.bias.head ? s.heads : 1;
      to = dbias +
           (item.batch % call.bias.batches * heads + (call.bias.head ? item.head : 0)) * s.queries * s.keys;
    }
    backward_head<Form>({call, b, item, call.lse + i * s.queries, to});
  }
}

}  // namespace tessera::kernels::TESSERA_ISA
