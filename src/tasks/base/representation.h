// Measures features without training a network on them. Features are [samples, width] of any floating-point
// type; labels int64 [samples]. Computes in float64 on the CPU unless noted.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

namespace tessera::tasks {

// exp of the entropy of the normalised singular values (Garrido et al. 2023): the number of directions in
// use.
double rankme(const torch::Tensor& features);
// Mean channel deviation of unit-length features, times the root of the width: 1 if they spread evenly over
// the sphere, 0 if all are equal.
double feature_deviation(const torch::Tensor& features);

// Other counts of directions. Effective rank: exp of the entropy of the normalised covariance eigenvalues e.
// Participation ratio: (sum e)^2 / sum e^2. Stable rank: sum s^2 / s_1^2 of the uncentred features.
struct Spectrum {
  torch::Tensor singular_values = {};         // descending
  torch::Tensor covariance_eigenvalues = {};  // eigenvalues, divided by samples - 1, descending
  double effective_rank = 0, participation_ratio = 0, stable_rank = 0;
};
Spectrum spectrum(const torch::Tensor& features);
// log of the mean over pairs of exp(-2 |a - b|^2) of unit-length features (Wang & Isola 2020): -4 if they
// spread far, 0 if all are equal.
double uniformity(const torch::Tensor& features);

// Similarity of two representations x and y of the same samples, invariant to rotation and scale: centred
// kernel alignment (Kornblith et al. 2019), 1 = equal. The debiased form removes the upward bias of few
// samples (Song et al. 2012; Nguyen et al. 2021). With `batch` > 0 it sums over consecutive batches of that
// size, to avoid a matrix of all pairs. Throws a usage error for batches under 4 samples.
double linear_cka(const torch::Tensor& x, const torch::Tensor& y);
double debiased_cka(const torch::Tensor& x, const torch::Tensor& y, int64_t batch = 0);

// k-nearest neighbours by cosine similarity, in float32. If `temperature` is 0, each neighbour has one vote.
// Otherwise a vote weighs exp(similarity / temperature), as in DINO (Caron et al. 2021: 0.07). Ties go to the
// lower class index.
struct NeighbourVote {
  int64_t neighbours = 20;
  double temperature = 0;
};
// Classifies `test` by the labels of `train`, on the device of `train`; returns int64 [test samples] on the CPU. Throws a usage error if there are
// fewer samples than neighbours.
torch::Tensor neighbour_classes(const torch::Tensor& train, const torch::Tensor& labels,
                                const torch::Tensor& test, const NeighbourVote& vote);
// Returns the leave-one-out accuracy.
double neighbour_accuracy(const torch::Tensor& features, const torch::Tensor& labels, int64_t neighbours);

// A linear classifier by ridge regression on centred one-hot targets:
//   W = (X' X + lambda N I)^-1 X' Y,  scores = (x - mean) / scale W + mean of the targets.
struct Ridge {
  torch::Tensor weight = {};            // [width, classes]
  torch::Tensor mean = {}, scale = {};  // feature statistics, [width]
  torch::Tensor target_mean = {};       // [classes]
  double lambda = 0;
  double loo = 0;  // mean squared leave-one-out residual, over samples and classes

  torch::Tensor scores(const torch::Tensor& features) const;  // [samples, classes]
};
// Picks the best of `lambdas` by closed-form leave-one-out. `standardise` divides features by their standard
// deviation.
Ridge fit_ridge(const torch::Tensor& features, const torch::Tensor& labels, int64_t classes,
                const std::vector<double>& lambdas, bool standardise);

}  // namespace tessera::tasks
