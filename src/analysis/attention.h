// Properties of attention weights: the number of directions they use, the distance and evenness of attention,
// and the source of a class token's attention through all layers.
//
// Attention is [..., heads, queries, keys] after the softmax, as in the tap "blocks.N.attention".
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

namespace tessera::analysis {

// Singular values of attention matrices, in descending order, and their effective rank (Wang et al. 2024,
// iLLaMA, section 3.7): the smallest k for which the k largest make up a share of at least `threshold`.
struct AttentionRank {
  torch::Tensor singular_values;  // [..., heads, tokens] float64
  torch::Tensor cumulative;       // cumulative sums, as shares of the total
  torch::Tensor rank;             // [..., heads] int64, from 1
};
AttentionRank attention_rank(const torch::Tensor& attention, double threshold = 0.8);

// The positions of the patches and of the token that the head reads in a sequence.
struct TokenLayout {
  int64_t rows = 0, columns = 0;
  int64_t first_patch = 0;   // position of the first patch; the others follow it
  int64_t class_token = -1;  // its position, -1: none
  int64_t patches() const { return rows * columns; }
};

// Returns the mean over query patches of the distance in pixels to the patches they attend to (Dosovitskiy et
// al. 2021). Weights among patches are normalised to sum 1. [..., heads] from [..., heads, tokens, tokens].
torch::Tensor attention_distance(const torch::Tensor& attention, const TokenLayout& layout, double patch);
// Returns the entropy of each row of weights, in nats: [..., heads, queries].
torch::Tensor attention_entropy(const torch::Tensor& attention);

// How the heads of a layer are combined.
enum class HeadFusion { mean, max, min };
// Returns the attention rollout (Abnar & Zuidema 2020): the product of (A + I) / 2 over layers, rows of sum
// 1, heads combined. Layers [batch, heads, tokens, tokens], first layer first -> [batch, tokens, tokens].
torch::Tensor rollout(const std::vector<torch::Tensor>& layers, HeadFusion fusion = HeadFusion::mean);
// Returns the relevance of tokens for tokens (Chefer et al. 2021, rule for self-attention): R += mean over
// heads of max(0, A * dA) R, where dA is the gradient of a class's score with respect to A.
torch::Tensor relevance(const std::vector<torch::Tensor>& layers,
                        const std::vector<torch::Tensor>& gradients);
// Returns the class token's row over patches of max(0, mean over heads of A * dA), [batch, patches].
torch::Tensor attention_gradcam(const torch::Tensor& attention, const torch::Tensor& gradient,
                                const TokenLayout& layout);

// Returns the class token's row of [..., tokens, tokens], restricted to the patches: [..., patches]. Without
// a class token, the mean over all rows.
torch::Tensor patches_seen(const torch::Tensor& matrix, const TokenLayout& layout);

// Converts the implicit attention of a Vision-LSTM layer (ops/mlstm_mixer.h), which may be negative, to rows
// of sum 1: magnitudes divided by their row's sum. Rows of zeros stay zero.
torch::Tensor magnitudes_of_sum_one(const torch::Tensor& mixing);

// The order in which a Vision-LSTM layer visits its tokens, derived from the tokens that each one reads.
enum class Walk { forwards, backwards, other };
Walk walk_of(const torch::Tensor& mixing);

}  // namespace tessera::analysis
