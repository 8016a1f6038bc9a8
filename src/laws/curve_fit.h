// A loss curve of one training, extrapolated from its first part; and consequences of a law of the loss for one
// size.
#pragma once

#include "laws/loss_law.h"

namespace tessera::laws {

// L(D) = floor + scale / D^exponent.
struct CurveFit {
  double floor = 0, scale = 0, exponent = 0;
  double loss(double samples) const;
};
// Fits by Huber's loss of logarithms. Needs at least 4 points.
CurveFit fit_curve(const std::vector<double>& samples, const std::vector<double>& losses);

// The loss at the end of a curve, as predicted from its first part.
struct Extrapolation {
  double predicted = 0, measured = 0, from_samples = 0, to_samples = 0;
};
// Uses the points within the first `share` of the samples. Returns measured = NaN if there are fewer than 4.
Extrapolation extrapolate(const Curve& curve, double share = 0.5);

// Returns the number of samples that a size needs to reach a loss; infinity if it never does.
double samples_for(const LossLaw& law, double parameters, double loss);

// Returns the number of samples up to which a size is the best for its compute. Beyond it, a larger size
// lowers the loss more than longer training.
double best_samples(const LossLaw& law, double parameters);

}  // namespace tessera::laws
