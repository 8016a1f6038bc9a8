// Projections of features onto a plane or a few directions.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

namespace tessera::analysis {

// Principal components, by falling variance; the entry of largest magnitude is positive in each. All float64.
struct PrincipalComponents {
  torch::Tensor components;                      // [count, width], rows of length 1
  torch::Tensor scores;                          // [samples, count], of the centred samples
  std::vector<double> variance, variance_share;  // per component, divided by samples - 1; share of the total
};
// x [samples, width]; gives at most min(samples, width) components. Throws Error below two samples.
PrincipalComponents principal_components(const torch::Tensor& x, int64_t count);

// t-SNE (eval/tsne.h) from the first two principal components: [samples, 2] float64.
torch::Tensor tsne_places(const torch::Tensor& features, double perplexity, int64_t steps, uint64_t seed,
                          double* divergence = nullptr);

}  // namespace tessera::analysis
