// The best size for a budget without a law of the loss: Hoffmann et al. 2022, approaches 1 and 2.
#pragma once

#include <vector>

#include "laws/loss_law.h"
#include "laws/points.h"

namespace tessera::laws {

struct Optimum {
  double flop = 0, parameters = 0, samples = 0, loss = 0;
};

// Best sizes over budgets, and the power laws parameters = scale flop^exponent, likewise for samples.
struct Frontier {
  std::vector<Optimum> optima{};
  double size_exponent = 0, size_scale = 0, samples_exponent = 0, samples_scale = 0;
  Interval size_interval{}, samples_interval{};  // 90 %, of the exponents
  double parameters(double flop) const { return size_scale * std::pow(flop, size_exponent); }
};

// Approach 1: the size with the least loss at each of `budgets` compute budgets, over loss curves that are
// interpolated in logarithms. Curves end where a budget trains all sizes to the end. Throws a usage error if
// fewer than two sizes are best anywhere.
Frontier fit_envelope(const std::vector<Curve>& curves, int budgets = 200);
// Returns curves that consist of the final losses of each size.
std::vector<Curve> curves_of(const std::vector<Point>& points);

// Approach 2: a parabola in log(parameters) for each budget, and a line through the logarithms of their
// minima. Points belong to one budget if their flop differ by less than 10 %. Throws a usage error with fewer
// than two budgets that have a minimum. Intervals come from a bootstrap within each budget.
Frontier fit_iso_flop(const std::vector<Point>& points, int resamples = 200, uint64_t seed = 0);

// Least squares of log y over log x: y = scale x^exponent.
struct Line {
  double scale = 0, exponent = 0;
};
Line fit_line(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace tessera::laws
