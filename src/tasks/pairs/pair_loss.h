// Losses over all pairs of a batch: every image with every text. The pairs are computed in chunks of rows and again in
// the backward pass, so that a batch of 8,192 never holds its 67 million similarities.
//
//   softmax (Radford et al. 2021, CLIP, figure 3), in one direction:
//     sum over queries i of  logsumexp_j(s q_i . k_j) - sum_j t_ij s q_i . k_j
//   sigmoid (Zhai et al. 2023, SigLIP, eq. 1):
//     sum over pairs of  -log sigmoid(z_ij (s q_i . k_j + b)),   z_ij = 1 for a pair that belongs together, else -1
//
// Where queries and keys are [n, tokens, width], s q_i . k_j is s times the similarity of their tokens instead
// (late_interaction.h: Yao et al. 2022, FILIP).
//
// Of several processes each gives its own rows of the batch as queries and as keys; the sums of the processes add up to
// that of the whole batch. The keys go round as a ring: a process computes with one block while the next one travels, so
// that no process holds the vectors of all (OpenCLIP's SigLIP does this between neighbours). Normalisers are collected
// block by block; in the backward pass the keys go round once more with their gradients, which come home to their process.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace tessera::tasks {

class Collective;

// What two samples of a batch are to each other that have one caption, or one class.
enum class EqualPairs {
  negatives,  // as any other two (CLIP)
  ignored,    // left out of the sums
  positives,  // belong together: t_ij is shared out evenly over them (Yang et al. 2022, UniCL, eq. 2 and 3)
};

struct PairOptions {
  EqualPairs equal = EqualPairs::negatives;
  // Which samples are equal: numbers [queries] and [keys], equal ones for equal samples of all processes; needed but for
  // `negatives`.
  torch::Tensor query_groups = {}, key_groups = {};
  int64_t chunk = 128;           // queries at a time
  Collective* others = nullptr;  // null: this process is alone; lives until the backward pass is over
};

// Scalars on the device of the queries.
struct PairLoss {
  torch::Tensor sum;    // over the queries, with its graph
  torch::Tensor right;  // queries whose best key is their own, without a graph
};

// Queries [n, width] and keys [m, width] of this process, both of length 1 a row, or tokens of both, [n, tokens, width];
// `own` int64 [n]: the key among them that belongs to each query; scale and bias scalars (the scale itself, not its
// logarithm). Computed in float32, or float64 if the queries are.
PairLoss softmax_pairs(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& scale,
                       const torch::Tensor& own, const PairOptions& options = {});
PairLoss sigmoid_pairs(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& scale,
                       const torch::Tensor& bias, const torch::Tensor& own, const PairOptions& options = {});

}  // namespace tessera::tasks
