// Kaplan et al. 2020: power laws of the loss in one quantity, and in size and samples together.
//
//   L(x) = (scale / x)^exponent
//   L(N, D) = ((N_c / N)^(alpha_N / alpha_D) + D_c / D)^alpha_D
#pragma once

#include <vector>

#include "laws/frontier.h"

namespace tessera::laws {

struct PowerLaw {
  double scale = 0, exponent = 0;
  Interval interval{};  // 90 %, of the exponent
  double loss(double x) const { return std::pow(scale / x, exponent); }
};

// Fits a line to logarithms; the interval comes from a bootstrap over points.
PowerLaw fit_power_law(const std::vector<double>& x, const std::vector<double>& losses, uint64_t seed = 0);

// The three laws in one quantity, each from the points where that quantity is the limit: the longest training
// of each size, the best size for each number of samples, and the lowest loss so far over compute. With fewer
// than 3 points a law is missing (scale 0).
struct KaplanLaws {
  PowerLaw parameters{}, samples{}, flop{};
};
KaplanLaws fit_kaplan(const std::vector<Point>& points);

struct JointLaw {
  double alpha_n = 0, alpha_d = 0, n_c = 0, d_c = 0;
  double objective = 0;  // the Huber sum at scale 1e-3
  double loss(double parameters, double samples) const;
};
JointLaw fit_joint_law(const std::vector<Point>& points);

// Kaplan's critical batch size in samples at a loss: scale / L^(1 / exponent), from points with a measured
// noise scale; scale 0 with fewer than 3.
PowerLaw fit_critical_batch(const std::vector<Point>& points);

}  // namespace tessera::laws
