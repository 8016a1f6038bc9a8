// Token-wise similarity of images and texts (Yao et al. 2022, FILIP, eq. 3 to 5): each token of a query is
// matched with the most similar token of the key.
//
//   s(q, k) = mean over tokens a of q of  max over tokens b of k of  q_a . k_b
//
// Rows [n, tokens, width] hold unit tokens; a zero token is padding, which is neither counted nor matched.
// The similarity is not symmetric: with images as queries it is FILIP's s^I, with texts s^T.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace tessera::tasks {

// Returns similarities [queries, keys], without a graph. All-padding queries or keys have similarity 0. Token
// products are held for a slice of the keys: about 16 MB, or all queries with one key.
torch::Tensor late_similarities(const torch::Tensor& queries, const torch::Tensor& keys);

// Adds the gradients for `slope` [queries, keys], the gradient of the similarities, to `by_query` and
// `by_key`, which have the shapes of queries and keys.
void add_late_gradients(const torch::Tensor& slope, const torch::Tensor& queries, const torch::Tensor& keys,
                        torch::Tensor& by_query, torch::Tensor& by_key);

// Returns the number of queries that fit this limit with one key.
int64_t late_queries_at_once(const torch::Tensor& queries, const torch::Tensor& keys);

}  // namespace tessera::tasks
