#include "analysis/implicit_attention.h"

namespace tessera::analysis {

torch::Tensor magnitudes_of_sum_one(const torch::Tensor& mixing) {
  const torch::Tensor magnitude = mixing.abs(), sum = magnitude.sum(-1, /*keepdim=*/true);
  return magnitude / torch::where(sum > 0, sum, torch::ones_like(sum));
}

Walk walk_of(const torch::Tensor& mixing) {
  if (mixing.triu(1).count_nonzero().item<int64_t>() == 0) return Walk::forwards;
  if (mixing.tril(-1).count_nonzero().item<int64_t>() == 0) return Walk::backwards;
  return Walk::other;
}

}  // namespace tessera::analysis
