// Chinchilla's law of the loss over size and samples, and its fit (Hoffmann et al. 2022, approach 3).
//
//   L(N, D) = E + A / N^alpha + B / D^beta
//   minimise sum_i Huber_1e-3(log L_i - LSE(a - alpha log N_i, b - beta log D_i, e)), A = exp(a) …
//   best N for C = k N D:  N = G (C/k)^(beta / (alpha + beta)),  G = (alpha A / (beta B))^(1 / (alpha + beta))
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "laws/points.h"

namespace tessera::laws {

struct LossLaw {
  double A = 0, B = 0, E = 0, alpha = 0, beta = 0;
  double loss(double parameters, double samples) const;
  // The exponent of the best size as a function of compute.
  double size_exponent() const { return beta / (alpha + beta); }
};

struct LossFit {
  LossLaw law{};
  double objective = 0;  // the Huber sum
};

// The best division of a compute budget. `flop_per_unit`: flop per parameter and sample (6 for tokens).
struct Allocation {
  double flop = 0, parameters = 0, samples = 0, loss = 0;
};
Allocation best_allocation(const LossLaw& law, double flop, double flop_per_unit = 6);

// Returns the median flop per parameter and sample, and the ratio of its largest and smallest value.
struct FlopPerUnit {
  double median = 6, spread = 1;
};
FlopPerUnit flop_per_unit(const std::vector<Point>& points);

// Returns Huber's sum of a law over points, at scale 1e-3.
double huber_sum(const LossLaw& law, const std::vector<Point>& points);

// Fits the law, from a grid of starting points.
LossFit fit_loss_law(const std::vector<Point>& points);
// Fits from given laws only.
LossFit fit_loss_law(const std::vector<Point>& points, const std::vector<LossLaw>& starts);

// Fits `count` resamples with replacement, starting from `fit` and laws near it. Equal seeds give equal
// results.
std::vector<LossLaw> bootstrap(const std::vector<Point>& points, const LossFit& fit, int count,
                               uint64_t seed = 0);

struct Interval {
  double low = 0, high = 0;
  bool contains(double value) const { return low <= value && value <= high; }
  double factor() const { return low > 0 ? high / low : INFINITY; }
};
// Returns the central interval of a quantity over several laws: `share` 0.9 leaves 5 % on each side.
Interval interval_of(const std::vector<LossLaw>& laws, const std::function<double(const LossLaw&)>& quantity,
                     double share = 0.9);
Interval interval_of(std::vector<double> values, double share = 0.9);

}  // namespace tessera::laws
