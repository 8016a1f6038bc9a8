// Shared by attention's files: blocks, working memory, and the keys that a query sees. C headers only;
// everything is static, so that each file gets its own copy.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/memory.h"

namespace tessera::kernels {

constexpr int64_t kForwardRows = 16;   // queries per step: their scores are computed, then used
constexpr int64_t kBackwardRows = 64;  // the same for backward
constexpr float kLog2E = 1.44269504f;  // scores are in units of log 2

// Keys [begin, end).
struct KeyRange {
  int64_t begin, end;
};

[[maybe_unused]] static KeyRange clamp_range(KeyRange range, int64_t begin, int64_t end) {
  const auto held = [=](int64_t at) __attribute__((always_inline)) {
    return at < begin ? begin : at > end ? end : at;
  };
  return {held(range.begin), held(range.end)};
}

// Returns the keys that a query at `position` sees; both bounds grow with the position.
[[maybe_unused]] static KeyRange seen_from(const AttentionMask& mask, int64_t position, int64_t keys) {
  KeyRange range = {0, keys};
  if (mask.window > 0) range = {position - mask.window + 1, position + mask.window};
  if (mask.causal && range.end > position + 1) range.end = position + 1;
  return clamp_range(range, 0, keys);
}

// Dp is D rounded up to 16, Nb the key block rounded up to 16, R the rows of a unit.
struct AttentionForwardScratch {
  float* queries;          // (R up to a multiple of 16, Dp) transposed
  float* rows;             // (Nb, Dp) keys before they are transposed
  float* keys_t;           // (Dp, Nb)
  float* values;           // (Nb, Dp)
  float* scores;           // (kForwardRows, Nb)
  float* sums;             // (R, Dp) sum of p v so far
  float* value_units;      // (Dp) units of integers
  float *highest, *total;  // (R) running maximum in units of log 2, running sum of p
  // For the byte form: units of queries and keys, initial sums of keys, and 16 rows of words in transit.
  float *query_units, *key_units, *key_starts;  // (R, Nb, Nb), up to a multiple of 16
  float* sixteen;                               // (Dp / 2, 16)
};

struct AttentionBackwardScratch {
  float *queries, *douts;    // (kBackwardRows, Dp)
  float *keys, *keys_t;      // (Nb, Dp), (D, Nb)
  float *rows, *values_t;    // (Nb, Dp), (D, Nb)
  float *weights, *dscores;  // (kBackwardRows, Nb)
  float *dkeys, *dvalues;    // (Nb, Dp)
  float* dqueries;           // (Q, Dp)
  float* dout_out;           // (Q) do_i . o_i
  // Words of two bfloat16, two rows of a matrix each:
  float *query_pairs, *dout_pairs;     // (kBackwardRows / 2, Dp)
  float* key_pairs;                    // (Nb / 2, Dp)
  float *weight_pairs, *dscore_pairs;  // (kBackwardRows / 2, Nb)
};

[[maybe_unused]] static AttentionForwardScratch lay_out_forward(Arena& arena, const AttentionShape& s) {
  AttentionForwardScratch f;
  const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block), R = s.query_rows;
  f.queries = take<float>(arena, round_up16(R) * Dp);
  f.rows = take<float>(arena, Nb * Dp);
  f.keys_t = take<float>(arena, Dp * Nb);
  f.values = take<float>(arena, Nb * Dp);
  f.scores = take<float>(arena, kForwardRows * Nb);
  f.sums = take<float>(arena, R * Dp);
  f.value_units = take<float>(arena, Dp);
  f.highest = take<float>(arena, R);
  f.total = take<float>(arena, R);
  f.query_units = take<float>(arena, round_up16(R));
  f.key_units = take<float>(arena, Nb);
  f.key_starts = take<float>(arena, Nb);
  f.sixteen = take<float>(arena, Dp / 2 * 16);
  return f;
}

[[maybe_unused]] static AttentionBackwardScratch lay_out_backward(Arena& arena, const AttentionShape& s) {
  AttentionBackwardScratch b;
  const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block);
  b.queries = take<float>(arena, kBackwardRows * Dp);
  b.douts = take<float>(arena, kBackwardRows * Dp);
  b.keys = take<float>(arena, Nb * Dp);
  b.keys_t = take<float>(arena, s.dim * Nb);
  b.rows = take<float>(arena, Nb * Dp);
  b.values_t = take<float>(arena, s.dim * Nb);
  b.weights = take<float>(arena, kBackwardRows * Nb);
  b.dscores = take<float>(arena, kBackwardRows * Nb);
  b.dkeys = take<float>(arena, Nb * Dp);
  b.dvalues = take<float>(arena, Nb * Dp);
  b.dqueries = take<float>(arena, s.queries * Dp);
  b.dout_out = take<float>(arena, s.queries);
  b.query_pairs = take<float>(arena, kBackwardRows / 2 * Dp);
  b.dout_pairs = take<float>(arena, kBackwardRows / 2 * Dp);
  b.key_pairs = take<float>(arena, Nb / 2 * Dp);
  b.weight_pairs = take<float>(arena, kBackwardRows / 2 * Nb);
  b.dscore_pairs = take<float>(arena, kBackwardRows / 2 * Nb);
  return b;
}

}  // namespace tessera::kernels
