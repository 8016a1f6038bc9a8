// Images and texts compared token by token (Yao et al. 2022, FILIP, eq. 3 to 5): each token of a query takes the token
// of the key that fits it best.
//
//   s(q, k) = mean over tokens a of q of  max over tokens b of k of  q_a . k_b
//
// Rows [n, tokens, width] hold tokens of length 1; a token of zeros is padding, which neither counts nor is taken. The
// similarity is not symmetric: of images as queries it is FILIP's s^I, of texts s^T.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace tessera::tasks {

// [queries, keys] of the similarities, without a graph. A query of padding alone is 0 to all keys, every query to a key of
// padding alone. Products of tokens are held for some keys at a time: about 16 MB, or those of all queries with one key.
torch::Tensor late_similarities(const torch::Tensor& queries, const torch::Tensor& keys);

// Its gradients from `slope` [queries, keys], the gradient by the similarities: added to `by_query` and `by_key`, which
// are as large as queries and keys.
void add_late_gradients(const torch::Tensor& slope, const torch::Tensor& queries, const torch::Tensor& keys,
                        torch::Tensor& by_query, torch::Tensor& by_key);

// Queries that fit into that bound with one key.
int64_t late_queries_at_once(const torch::Tensor& queries, const torch::Tensor& keys);

}  // namespace tessera::tasks
