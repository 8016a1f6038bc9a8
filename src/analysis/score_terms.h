// The terms of attention scores (Chu et al. 2024, VisionLLaMA, section 5.2, eq. 5), with a position p in
// query and key:
//
//   (q + p_i) . (k + p_j) = q . k + p_i . p_j + (q . p_j + p_i . k)
//                           content  position    cross
//
// In a trained layer the position's share of a query is the part common to all images at its place: the mean
// over images minus the mean over images and places. The rest is content. Rotary positions add no term: they
// rotate each part.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

#include "analysis/attention.h"

namespace tessera::analysis {

// Returns the positions' share of queries or keys, [windows, heads, tokens, d], from their mean over images.
torch::Tensor position_share(const torch::Tensor& mean);

// Queries or keys of several images.
struct ScoreOperand {
  torch::Tensor values;    // [images, windows, heads, tokens, d], before rotation
  torch::Tensor position;  // [windows, heads, tokens, d]
  // Cosines and sines of the angles that rotate pairs of channels, [tokens, pairs] or [heads, tokens, pairs];
  // undefined: no rotation.
  torch::Tensor cos = {}, sin = {};
};

// The terms for each pair of query and key, scaled by 1 / sqrt(d): [images, windows, heads, queries, keys],
// float64. Their sum is the score without biases.
struct ScoreTerms {
  torch::Tensor content, position, cross;
};
ScoreTerms score_terms(const ScoreOperand& queries, const ScoreOperand& keys);

// Returns the deviation of a term over the keys that a query sees, the only variation that affects the
// softmax: the root of the mean variance over images, windows and queries, [heads]. `seen` is bool, of the
// term's shape.
torch::Tensor term_deviation(const torch::Tensor& term, const torch::Tensor& seen);

// Returns the mean of a term over pairs of patches at each rounded distance 0, 1, …; NaN if no visible pair
// has that distance. Terms are [..., tokens, tokens] in the layout's order.
std::vector<double> term_by_distance(const torch::Tensor& term, const torch::Tensor& seen,
                                     const TokenLayout& layout);

}  // namespace tessera::analysis
