// Relative positions: numbers added to attention scores, chosen by the offset of a key from its query.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::nn {

// Returns the bucket of each offset (key minus query, int64, any shape), 0 … buckets - 1, as in T5 (Raffel et
// al. 2020). Half of the buckets hold one offset each. The others grow logarithmically up to `furthest`, and
// all larger offsets share the last. With `both_sides`, later keys use the upper half of the buckets;
// otherwise they share bucket 0. Needs at least two buckets per side and `furthest` beyond the exact ones.
torch::Tensor relative_buckets(const torch::Tensor& offsets, bool both_sides, int64_t buckets,
                               int64_t furthest);

// ALiBi (Press et al. 2022): the slope of each head, [heads] float64: 2^(-8 i / heads) for a power of two,
// else the slopes of the next lower power and every second one of the next higher power.
torch::Tensor alibi_slopes(int64_t heads);
// -slope * |key - query|, [heads, tokens, tokens] float64, for AttentionExtras::bias.
torch::Tensor alibi_bias(int64_t heads, int64_t tokens);
// The same for patches of a grid by the distance between their centres, in patches (2-D ALiBi, Fuller et al.
// 2022). Returns [1, heads, tokens, tokens] float64 for `prefix` tokens without a position, with bias 0, and
// rows * columns patches.
torch::Tensor alibi_bias_2d(int64_t heads, int64_t prefix, int64_t rows, int64_t columns);

// T5's buckets on a grid: a learned number per head for the row offset of two patches plus one for the column
// offset (the cross method of Wu et al. 2021). Parameters rows and columns [buckets, heads].
class GridBiasImpl : public torch::nn::Module {
 public:
  explicit GridBiasImpl(int64_t heads);
  // Returns [1, heads, tokens, tokens] as in alibi_bias_2d.
  torch::Tensor forward(int64_t prefix, int64_t rows, int64_t columns) const;

 private:
  torch::Tensor rows_, columns_;
};
TORCH_MODULE(GridBias);

// A learned number per head for each offset of two patches of a grid (Swin, BEiT). `table` is [(2 rows - 1) *
// (2 columns - 1), heads]. With `class_token` (Bao et al. 2022, BEiT) three more rows follow: class token to
// patch, patch to class token, class token to itself. -> [1, heads, tokens, tokens] with the class token
// first.
torch::Tensor offset_bias(const torch::Tensor& table, int64_t rows, int64_t columns,
                          bool class_token = false);
int64_t offset_bias_rows(int64_t rows, int64_t columns, bool class_token);
// Resamples such a table to another grid: offsets bicubically as in Swin's code, the class token's rows
// unchanged. Returns it unchanged if the grid is the same.
torch::Tensor resample_offset_bias(const torch::Tensor& table, int64_t old_rows, int64_t old_columns,
                                   int64_t rows, int64_t columns, bool class_token);
// Resamples a stored table of a square grid to this one; undefined if it is not such a table.
torch::Tensor fit_offset_bias(const torch::Tensor& stored, int64_t rows, int64_t columns, int64_t heads,
                              bool class_token);

}  // namespace tessera::nn
