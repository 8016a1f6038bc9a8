// Positions as numbers added to the scores of attention, by how far a key is from its query.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::nn {

// The bucket of each offset (key minus query, int64, any shape), 0 … buckets - 1, as T5 has it (Raffel et al.
// 2020): half of them hold one offset each, the others grow logarithmically up to `furthest`, beyond which
// all share the last. With `both_sides` later keys have the upper half of the buckets, else they share bucket
// 0. Needs at least two buckets a side and `furthest` beyond the exact ones.
torch::Tensor relative_buckets(const torch::Tensor& offsets, bool both_sides, int64_t buckets,
                               int64_t furthest);

// ALiBi (Press et al. 2022): the slope of each head, [heads] float64: 2^(-8 i / heads) for a power of two,
// else those of the power below and every second one of the power above.
torch::Tensor alibi_slopes(int64_t heads);
// -slope * |key - query|, [heads, tokens, tokens] float64, for AttentionExtras::bias.
torch::Tensor alibi_bias(int64_t heads, int64_t tokens);
// The same for patches of a grid by the distance between their middles, in patches (2-D ALiBi, Fuller et al.
// 2022): [1, heads, tokens, tokens] float64 for `prefix` tokens without a place, biased by 0, and rows *
// columns patches.
torch::Tensor alibi_bias_2d(int64_t heads, int64_t prefix, int64_t rows, int64_t columns);

// T5's buckets on a grid: a learned number a head for the row offset of two patches and one for the column
// offset, added up (the cross method of Wu et al. 2021). Parameters rows and columns [buckets, heads].
class GridBiasImpl : public torch::nn::Module {
 public:
  explicit GridBiasImpl(int64_t heads);
  // [1, heads, tokens, tokens] as alibi_bias_2d.
  torch::Tensor forward(int64_t prefix, int64_t rows, int64_t columns) const;

 private:
  torch::Tensor rows_, columns_;
};
TORCH_MODULE(GridBias);

// A learned number a head for each offset of two patches of a grid (Swin, BEiT): `table` [(2 rows - 1) *
// (2 columns - 1), heads], and with `class_token` (Bao et al. 2022, BEiT) three rows more, in this order: the class
// token attending to a patch, a patch to the class token, the class token to itself. -> [1, heads, tokens, tokens]
// with the class token in front.
torch::Tensor offset_bias(const torch::Tensor& table, int64_t rows, int64_t columns,
                          bool class_token = false);
int64_t offset_bias_rows(int64_t rows, int64_t columns, bool class_token);
// Such a table moved to another grid, offsets bicubically interpolated as Swin's code does, the class token's rows
// as they are; itself if the grid is the same.
torch::Tensor resample_offset_bias(const torch::Tensor& table, int64_t old_rows, int64_t old_columns,
                                   int64_t rows, int64_t columns, bool class_token);
// A stored table of a square grid moved to this one; undefined if it is none.
torch::Tensor fit_offset_bias(const torch::Tensor& stored, int64_t rows, int64_t columns, int64_t heads,
                              bool class_token);

}  // namespace tessera::nn
