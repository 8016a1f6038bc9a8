// Parts shared by the forward and backward pass of attention: rows rotated by position, and scores with bias
// and mask. Per-ISA.
#pragma once

#include "kernels/attention/attention_layout.h"
#include "kernels/rows.h"
#include "kernels/tiles.h"

namespace tessera::kernels::TESSERA_ISA {

void attention_backward(const AttentionBackward& call, int64_t begin, int64_t end, float* dbias,
                        void* scratch);

// The sample and head of an item.
struct AttentionItem {
  int64_t batch, head;
};

template <class Pointer>
TESSERA_INLINE Pointer row_of(const HeadView<Pointer>& view, const AttentionItem& item, int64_t token) {
  return advance(view.data, view.element,
                 item.batch * view.batch + item.head * view.head + token * view.token);
}

// x_2m' = x_2m cos - x_2m+1 sin, x_2m+1' = x_2m sin + x_2m+1 cos, or the inverse for direction -1.
[[maybe_unused]] static void rotate_rows(float* rows, int64_t row, int64_t count, const Rotary& table,
                                         int64_t head, int64_t token, float direction) {
  if (!table.cos) return;
  const vi lane = lanes();
  const vf sign = (lane & 1) ? splat(direction) : splat(-direction);
  for (int64_t t = 0; t < count; ++t, rows += row) {
    const int64_t at = head * table.head + (token + t) * table.token;
    for (int64_t p = 0; p < table.pairs; p += W) {
      const int64_t left = table.pairs - p;
      const vf cos = get(table.cos + at + p, left), sin = get(table.sin + at + p, left);
      for (int half = 0; half < 2; ++half) {
        const int64_t channel = 2 * p + half * W;
        if (channel >= 2 * table.pairs) break;
        const vi pair = (lane >> 1) + half * (W / 2);
        const vf x = load(rows + channel);
        const vf rotated = x * __builtin_shuffle(cos, pair) +
                           __builtin_shuffle(x, lane ^ 1) * __builtin_shuffle(sin, pair) * sign;
        store(rows + channel, lane + (int32_t)channel < (int32_t)(2 * table.pairs) ? rotated : x);
      }
    }
  }
}

// Reads rows token … token+count-1 of an item as floats, rotated; `to` has rows of Dp.
[[maybe_unused]] static void read_rows(const HeadRows& from, const AttentionShape& s,
                                       const AttentionItem& item, int64_t token, int64_t count,
                                       const Rotary& table, float* to) {
  const int64_t Dp = round_up16(s.dim);
  const void* at = row_of(from, item, token);
  if (from.element == Element::f32)
    copy_rows((const float*)at, from.token, count, s.dim, to, Dp);
  else
    copy_rows((const bf16*)at, from.token, count, s.dim, to, Dp);
  rotate_rows(to, Dp, count, table, item.head, token, 1);
}

template <class T>
TESSERA_INLINE void put_row(const float* from, int64_t width, float factor, T* to) {
  for (int64_t c = 0; c < width; c += W) put(to + c, load(from + c) * factor, width - c);
}

// Location and layout of one query's scores in a block; columns are counted from the block's first key.
struct ScoreRow {
  float* scores;      // products on entry
  const float* bias;  // at the block's first key, or null
  int64_t bias_left;  // how many numbers may be read from there
  KeyRange columns;   // computed columns; begin is a multiple of 16
  KeyRange seen;      // columns that the query sees
  float scale;        // scale of the products, in units of log 2
};

// The factor that is still missing in the scores of a row after finish_scores.
TESSERA_INLINE float gain_of(const ScoreRow& row) { return row.bias ? 1.0f : row.scale; }

TESSERA_INLINE bool sees_all(const ScoreRow& row, int64_t c) {
  return c >= row.seen.begin && c + W <= row.seen.end;
}

// Returns the scores from column c on with bias and mask, without gain_of; -infinity for hidden keys.
TESSERA_INLINE vf finish_scores(const ScoreRow& row, int64_t c) {
  vf s = load(row.scores + c);
  if (row.bias) s = s * row.scale + get(row.bias + c, row.bias_left - c) * kLog2E;
  if (!sees_all(row, c)) {
    const vi column = lanes() + (int32_t)c;
    s = column >= (int32_t)row.seen.begin && column < (int32_t)row.seen.end ? s : splat(-__builtin_inff());
  }
  return s;
}

// keep_ij for the columns from c on, for a query with column `own`.
TESSERA_INLINE vf keep_weights(vf p, int64_t c, int64_t own, float future_weight) {
  if (c + W <= own + 1) return p;
  return lanes() + (int32_t)c > (int32_t)own ? p * future_weight : p;
}

}  // namespace tessera::kernels::TESSERA_ISA
