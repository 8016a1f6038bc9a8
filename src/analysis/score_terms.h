// What attention's scores are made of (Chu et al. 2024, VisionLLaMA, section 5.2, eq. 5): with a position p in a query and
// in a key,
//
//   (q + p_i) . (k + p_j) = q . k + p_i . p_j + (q . p_j + p_i . k)
//                           content  position    cross
//
// In a trained layer the position's share of a query is what all images have in common at its place: the mean over images
// less the mean over images and places. What is left is content. Rotary positions are no addend: they rotate each part.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

#include "analysis/attention.h"

namespace tessera::analysis {

// The positions' share of queries or keys, [windows, heads, tokens, d], from their mean over images, of the same shape.
torch::Tensor position_share(const torch::Tensor& mean);

// Queries or keys of some images.
struct ScoreOperand {
  torch::Tensor values;    // [images, windows, heads, tokens, d], before positions rotate them
  torch::Tensor position;  // [windows, heads, tokens, d]
  // Cosines and sines of the angles by which pairs of channels are rotated, [tokens, pairs] or [heads, tokens, pairs];
  // undefined: none.
  torch::Tensor cos = {}, sin = {};
};

// The terms of each query and key, scaled by 1 / sqrt(d): [images, windows, heads, queries, keys], float64. Their sum is
// the score without biases.
struct ScoreTerms {
  torch::Tensor content, position, cross;
};
ScoreTerms score_terms(const ScoreOperand& queries, const ScoreOperand& keys);

// How far a term varies over the keys that a query sees, all that the softmax reacts to: the root of the mean variance over
// images, windows and queries, [heads]. `seen` is bool, of the term's shape.
torch::Tensor term_deviation(const torch::Tensor& term, const torch::Tensor& seen);

// The mean of a term over all pairs of patches that are so many patches apart, rounded: `means` by distance 0, 1, …; NaN
// where no pair that is seen is that far apart. Terms are [..., tokens, tokens] of the layout's sequence.
std::vector<double> term_by_distance(const torch::Tensor& term, const torch::Tensor& seen,
                                     const TokenLayout& layout);

}  // namespace tessera::analysis
