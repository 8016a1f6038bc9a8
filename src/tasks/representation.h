// What features are worth without training a network on them. Features are [samples, width] of any floating
// type; labels int64 [samples]. All is computed in float64 on the CPU unless said otherwise.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

namespace tessera::tasks {

// exp of the entropy of the singular values' shares (Garrido et al. 2023): the number of directions in use.
double rankme(const torch::Tensor& features);
// The mean over channels of the deviation over samples, of features of length 1, times the root of the width:
// 1 where they spread evenly over the sphere, 0 where all are one.
double feature_deviation(const torch::Tensor& features);

// k-nearest neighbours by cosine similarity, in float32. `temperature` 0: each neighbour has one vote; else
// exp(similarity / temperature) of them, as in DINO (Caron et al. 2021: 0.07). Equal votes go to the class of
// lower index.
struct NeighbourVote {
  int64_t neighbours = 20;
  double temperature = 0;
};
// The classes of `test` by the labels of `train`, int64 [test samples]. A usage error with more neighbours
// than samples.
torch::Tensor neighbour_classes(const torch::Tensor& train, const torch::Tensor& labels,
                                const torch::Tensor& test, const NeighbourVote& vote);
// The share of samples that the others class rightly, each left out of its own neighbours.
double neighbour_accuracy(const torch::Tensor& features, const torch::Tensor& labels, int64_t neighbours);

// A linear classifier by ridge regression on one-hot targets less their mean:
//   W = (X' X + lambda N I)^-1 X' Y,  scores = (x - mean) / scale W + mean of the targets.
struct Ridge {
  torch::Tensor weight = {};            // [width, classes]
  torch::Tensor mean = {}, scale = {};  // of the features, [width]
  torch::Tensor target_mean = {};       // [classes]
  double lambda = 0;
  double loo = 0;  // the mean squared leave-one-out residual over samples and classes

  torch::Tensor scores(const torch::Tensor& features) const;  // [samples, classes]
};
// The best of `lambdas` by leave-one-out, in closed form. `standardise` divides features by their deviation.
Ridge fit_ridge(const torch::Tensor& features, const torch::Tensor& labels, int64_t classes,
                const std::vector<double>& lambdas, bool standardise);

}  // namespace tessera::tasks
