// Features as places on a plane or in a few directions.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

namespace tessera::analysis {

// Principal components, by falling variance; of each the entry of largest magnitude is positive. All float64.
struct PrincipalComponents {
  torch::Tensor components;                      // [count, width], rows of length 1
  torch::Tensor scores;                          // [samples, count], of the samples less their mean
  std::vector<double> variance, variance_share;  // of each, with samples - 1; as a share of the whole
};
// x [samples, width]; at most min(samples, width) components. Fails below two samples.
PrincipalComponents principal_components(const torch::Tensor& x, int64_t count);

// t-SNE (eval/tsne.h) from the first two principal components: [samples, 2] float64.
torch::Tensor tsne_places(const torch::Tensor& features, double perplexity, int64_t steps, uint64_t seed,
                          double* divergence = nullptr);

}  // namespace tessera::analysis
