// What attention's weights say: how many directions they use, how far and how evenly they look, and where a class token's
// look comes from through all layers.
//
// Attention is [..., heads, queries, keys] after the softmax, as the tap "blocks.N.attention" keeps it.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

namespace tessera::analysis {

// Singular values of attention matrices, in falling order, and how many of them are needed (Wang et al. 2024, iLLaMA,
// section 3.7): the least k whose sum is at least `threshold` of all.
struct AttentionRank {
  torch::Tensor singular_values;  // [..., heads, tokens] float64
  torch::Tensor cumulative;       // running sums as shares of the whole
  torch::Tensor rank;             // [..., heads] int64, from 1
};
AttentionRank attention_rank(const torch::Tensor& attention, double threshold = 0.8);

// The places of patches and of the token that the head reads among a sequence's tokens.
struct TokenLayout {
  int64_t rows = 0, columns = 0;
  int64_t first_patch = 0;   // place of the first patch; the others follow it
  int64_t class_token = -1;  // its place, -1: there is none
  int64_t patches() const { return rows * columns; }
};

// The mean over query patches of the distance to the patches that they attend to, in pixels (Dosovitskiy et al. 2021): weights
// among patches alone, of sum 1. [..., heads] from [..., heads, tokens, tokens].
torch::Tensor attention_distance(const torch::Tensor& attention, const TokenLayout& layout, double patch);
// Of each row of weights, in nats: [..., heads, queries].
torch::Tensor attention_entropy(const torch::Tensor& attention);

// How the heads of a layer are joined.
enum class HeadFusion { mean, max, min };
// Attention rollout (Abnar & Zuidema 2020): the product of (A + I) / 2 over layers, rows of sum 1, each layer's heads joined.
// Layers [batch, heads, tokens, tokens], the first one first -> [batch, tokens, tokens].
torch::Tensor rollout(const std::vector<torch::Tensor>& layers, HeadFusion fusion = HeadFusion::mean);
// Relevance of tokens for tokens (Chefer et al. 2021, the rule for self-attention): R += mean over heads of max(0, A * dA) R, dA
// the gradient of a class' score to A.
torch::Tensor relevance(const std::vector<torch::Tensor>& layers,
                        const std::vector<torch::Tensor>& gradients);
// max(0, mean over heads of A * dA) of one layer: the class token's row, patches alone, [batch, patches].
torch::Tensor attention_gradcam(const torch::Tensor& attention, const torch::Tensor& gradient,
                                const TokenLayout& layout);

// The row of a matrix [..., tokens, tokens] that belongs to the class token, or without one the mean over all rows, cut to the
// patches: [..., patches].
torch::Tensor patches_seen(const torch::Tensor& matrix, const TokenLayout& layout);

}  // namespace tessera::analysis
