// The two products of the forward pass on words of two 16-bit numbers. Per-ISA, like pair_tiles.h.
#pragma once

#include "kernels/attention/attention_units.h"
#include "kernels/pair_tiles.h"

namespace tessera::kernels::TESSERA_ISA {

// Rows of words; `row` counts floats.
struct WordRows {
  const float* data;
  int64_t row;
};

// Computes scores of rows r … of the unit, from words of queries and of transposed keys.
[[maybe_unused]] static void word_scores(const AttentionUnit& unit, const WordRows& queries, int64_t r,
                                         int64_t rows, const KeyRange& columns) {
  const AttentionShape& s = unit.call.shape;
  const int64_t Nb = round_up16(s.key_block);
  pair_product({queries.data + r * queries.row, queries.row, unit.f.keys_t + columns.begin, Nb,
                (s.dim + 1) / 2, unit.f.scores + columns.begin, Nb},
               rows, round_up16(columns.end) - columns.begin);
}

// sums += weights V, from words of weights along the keys and words of two rows of v. `units` of each
// channel, null: 1.
[[maybe_unused]] static void add_word_values(const AttentionUnit& unit, int64_t r, int64_t rows,
                                             const KeyRange& keys, const float* units) {
  const AttentionShape& s = unit.call.shape;
  const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block);
  pair_product({unit.f.scores + keys.begin / 2, Nb, unit.f.values + keys.begin / 2 * Dp, Dp,
                (keys.end - keys.begin + 1) / 2, unit.f.sums + r * Dp, Dp, 1, 1, units},
               rows, Dp);
}

}  // namespace tessera::kernels::TESSERA_ISA
