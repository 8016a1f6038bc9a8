// The classic attention scores between queries and keys, and the values they read. Additive: Bahdanau et al.
// 2015, "Neural machine translation by jointly learning to align and translate". Dot and general: Luong et
// al. 2015, "Effective approaches to attention-based neural machine translation". One head, queries and keys
// of any widths; multi-head scaled dot products are attend() of attention.h.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/linear.h"

namespace tessera::nn {

// q . k for queries [batch, queries, width] and keys [batch, keys, width] -> scores [batch, queries, keys].
torch::Tensor dot_scores(const torch::Tensor& queries, const torch::Tensor& keys);

// v . tanh(W q + U k + b) for queries [batch, queries, query_width] and keys [batch, keys, key_width] ->
// scores [batch, queries, keys]. Parameters W [hidden, query_width], U [hidden, key_width] with a bias, v [1,
// hidden]. Needs memory for batch * queries * keys * hidden numbers.
class AdditiveScoresImpl : public torch::nn::Module {
 public:
  AdditiveScoresImpl(int64_t query_width, int64_t key_width, int64_t hidden);
  torch::Tensor forward(const torch::Tensor& queries, const torch::Tensor& keys) const;

 private:
  Linear query_{nullptr}, key_{nullptr}, score_{nullptr};
};
TORCH_MODULE(AdditiveScores);

// (W q) . k, W [key_width, query_width].
class GeneralScoresImpl : public torch::nn::Module {
 public:
  GeneralScoresImpl(int64_t query_width, int64_t key_width);
  torch::Tensor forward(const torch::Tensor& queries, const torch::Tensor& keys) const;

 private:
  Linear query_{nullptr};
};
TORCH_MODULE(GeneralScores);

// Returns bool [batch, keys]: true for each sample's first `lengths` [batch] int64 keys.
torch::Tensor keys_within(const torch::Tensor& lengths, int64_t keys);

// Weights [batch, queries, keys]: the softmax of the scores over the keys `seen` (bool [batch, keys] or
// [batch, queries, keys], undefined = all). They are 0 for a query that sees no key. Context [batch, queries,
// width]: the weighted sum of the values [batch, keys, width].
struct Attended {
  torch::Tensor context, weights;
};
Attended read_by_scores(const torch::Tensor& scores, const torch::Tensor& values,
                        const torch::Tensor& seen = {});

}  // namespace tessera::nn
