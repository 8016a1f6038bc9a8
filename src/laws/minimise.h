// Minimises functions of a few variables.
#pragma once

#include <cmath>
#include <functional>
#include <span>
#include <vector>

namespace tessera::laws {

// Returns the value at `x` and writes the gradient.
using Objective = std::function<double(std::span<const double> x, std::span<double> gradient)>;

struct Minimum {
  std::vector<double> x{};
  double value = 0;
};

// BFGS with a line search for the weak Wolfe conditions, which also converges on sums of absolute values
// (Lewis and Overton 2013). Stops if an iteration lowers the value by less than the share `tolerance`.
Minimum minimise(const Objective& objective, std::vector<double> start, int iterations = 500,
                 double tolerance = 1e-13);

// Huber's loss of a residual (at the scale 1e-3, as Hoffmann et al. use it on logarithms), divided by the
// scale: about |residual| for large ones.
constexpr double kHuber = 1e-3;
inline double huber(double residual) {
  const double size = std::abs(residual);
  return size <= kHuber ? 0.5 * size * size / kHuber : size - 0.5 * kHuber;
}

// Adds a gradient by central differences to a function without one.
Objective with_gradient(std::function<double(std::span<const double>)> value, double step = 1e-6);

}  // namespace tessera::laws
