// Projections of features onto a plane or a few directions.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

namespace tessera::analysis {

// Principal components, by descending variance; each has its largest entry positive. All float64.
struct PrincipalComponents {
  torch::Tensor components;                      // [count, width], rows of unit length
  torch::Tensor scores;                          // [samples, count], coordinates of the centred samples
  std::vector<double> variance, variance_share;  // per component, divided by samples - 1; share of total
};
// x [samples, width]; returns at most min(samples, width) components. Throws Error below two samples.
PrincipalComponents principal_components(const torch::Tensor& x, int64_t count);

// t-SNE (eval/tsne.h) from the first two principal components: [samples, 2] float64.
torch::Tensor tsne_places(const torch::Tensor& features, double perplexity, int64_t steps, uint64_t seed,
                          double* divergence = nullptr);

}  // namespace tessera::analysis
