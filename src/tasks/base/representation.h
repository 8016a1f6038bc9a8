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

// Other counts of directions: exp of the entropy of the covariance's eigenvalues' shares, the participation
// ratio (sum e)^2 / sum e^2 of those eigenvalues, and the stable rank sum s^2 / s_1^2 of the features as they
// are.
struct Spectrum {
  torch::Tensor singular_values = {};         // of the features, descending
  torch::Tensor covariance_eigenvalues = {};  // by samples - 1, descending
  double effective_rank = 0, participation_ratio = 0, stable_rank = 0;
};
Spectrum spectrum(const torch::Tensor& features);
// log of the mean over pairs of exp(-2 |a - b|^2) of features of length 1 (Wang & Isola 2020): -4 where they
// spread far, 0 where all are one.
double uniformity(const torch::Tensor& features);

// How alike two representations x and y of the same samples are, whatever rotates or scales them: centred
// kernel alignment (Kornblith et al. 2019), 1 = alike. The debiased form estimates it without the upward bias
// of few samples (Song et al. 2012; Nguyen et al. 2021); with `batch` > 0 its sums go over consecutive batches
// of that size, so that no matrix of all pairs is needed. A usage error with fewer than 4 samples in one.
double linear_cka(const torch::Tensor& x, const torch::Tensor& y);
double debiased_cka(const torch::Tensor& x, const torch::Tensor& y, int64_t batch = 0);

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
