// Losses over all pairs of a batch: every image with every text. Pairs are computed in chunks of rows, and
// again in the backward pass, so a batch of 8,192 never holds its 67 million similarities.
//
//   softmax (Radford et al. 2021, CLIP, figure 3), in one direction:
//     sum over queries i of  logsumexp_j(s q_i . k_j) - sum_j t_ij s q_i . k_j
//   sigmoid (Zhai et al. 2023, SigLIP, eq. 1):
//     sum over pairs of  -log sigmoid(z_ij (s q_i . k_j + b)),   z_ij = 1 for a pair that belongs together, else -1
//
// If queries and keys are [n, tokens, width], s q_i . k_j is s times their token similarity instead
// (late_interaction.h: Yao et al. 2022, FILIP).
//
// With several processes, each passes its own rows of the batch as queries and keys; the sums of the
// processes add up to that of the whole batch. The keys travel around a ring: a process computes with one
// block while it receives the next, so none holds all vectors (OpenCLIP's SigLIP does this between
// neighbours). Normalisers accumulate block by block. In the backward pass the keys travel again with their
// gradients, which return to their owner.
#pragma once

#include <torch/types.h>
#include <cstdint>

namespace tessera::tasks {

class Collective;

// How the loss treats two samples of a batch with equal captions, or of one class.
enum class EqualPairs {
  negatives,  // like any others (CLIP)
  ignored,    // excluded from the sums
  positives,  // positives: t_ij is split evenly among them (Yang et al. 2022, UniCL, eq. 2 and 3)
};

struct PairOptions {
  EqualPairs equal = EqualPairs::negatives;
  // Group ids [queries] and [keys], equal for equal samples across processes; not needed for `negatives`.
  torch::Tensor query_groups = {}, key_groups = {};
  int64_t chunk = 128;           // queries at a time
  Collective* others = nullptr;  // null: a single process; otherwise must outlive the backward pass
};

// Scalars on the device of the queries.
struct PairLoss {
  torch::Tensor sum;    // sum over the queries, with its graph
  torch::Tensor right;  // number of queries that rank their own key first, without a graph
};

// Queries [n, width] and keys [m, width] of this process, as unit rows, or tokens of both, [n, tokens,
// width]. `own` int64 [n]: index of each query's key. scale and bias are scalars (the scale itself, not its
// logarithm). Computes in float32, or in float64 if the queries are.
PairLoss softmax_pairs(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& scale,
                       const torch::Tensor& own, const PairOptions& options = {});
PairLoss sigmoid_pairs(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& scale,
                       const torch::Tensor& bias, const torch::Tensor& own, const PairOptions& options = {});

// Token-wise similarity of images and texts (Yao et al. 2022, FILIP, eq. 3 to 5): each token of a query is
// matched with the most similar token of the key.
//
//   s(q, k) = mean over tokens a of q of  max over tokens b of k of  q_a . k_b
//
// Rows [n, tokens, width] hold unit tokens; a zero token is padding, which is neither counted nor matched.
// The similarity is not symmetric: with images as queries it is FILIP's s^I, with texts s^T.

// Returns similarities [queries, keys], without a graph. All-padding queries or keys have similarity 0.
// Memory holds the token products of a slice of the keys: about 16 MB, or all queries with one key.
torch::Tensor late_similarities(const torch::Tensor& queries, const torch::Tensor& keys);

// Adds the gradients for `slope` [queries, keys], the gradient of the similarities, to `by_query` and
// `by_key`, which have the shapes of queries and keys.
void add_late_gradients(const torch::Tensor& slope, const torch::Tensor& queries, const torch::Tensor& keys,
                        torch::Tensor& by_query, torch::Tensor& by_key);

// Returns the number of queries that stay within this limit with one key.
int64_t late_queries_at_once(const torch::Tensor& queries, const torch::Tensor& keys);

}  // namespace tessera::tasks
