#include "laws/curve_fit.h"

#include <algorithm>
#include <cmath>

#include "laws/minimise.h"

namespace tessera::laws {

double CurveFit::loss(double samples) const { return floor + scale * std::pow(samples, -exponent); }

CurveFit fit_curve(const std::vector<double>& samples, const std::vector<double>& losses) {
  const double least = *std::min_element(losses.begin(), losses.end());
  const double middle = std::log(samples[samples.size() / 2]);
  // x: log floor, log of the other term at the middle point, log exponent.
  const Objective sum = with_gradient([&](std::span<const double> x) {
    double all = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      const double term = x[1] - std::exp(x[2]) * (std::log(samples[i]) - middle),
                   most = std::max(x[0], term);
      all += huber(std::log(losses[i]) - most - std::log(std::exp(x[0] - most) + std::exp(term - most)));
    }
    return all;
  });
  Minimum best{.value = INFINITY};
  for (const double share : {0.3, 0.7, 0.95})
    for (const double exponent : {0.2, 0.5, 1.0}) {
      const Minimum found =
          minimise(sum, {std::log(share * least), std::log((1.2 - share) * least), std::log(exponent)}, 200);
      if (found.value < best.value) best = found;
    }
  const double exponent = std::exp(best.x[2]);
  return {std::exp(best.x[0]), std::exp(best.x[1] + exponent * middle), exponent};
}

Extrapolation extrapolate(const Curve& curve, double share) {
  Extrapolation out{.predicted = NAN, .measured = NAN};
  if (curve.samples.empty()) return out;
  std::vector<double> samples, losses;
  for (size_t i = 0; i < curve.samples.size(); ++i)
    if (curve.samples[i] <= share * curve.samples.back())
      samples.push_back(curve.samples[i]), losses.push_back(curve.losses[i]);
  if (samples.size() < 4) return out;
  out.from_samples = samples.back(), out.to_samples = curve.samples.back();
  out.predicted = fit_curve(samples, losses).loss(out.to_samples);
  out.measured = curve.losses.back();
  return out;
}

double samples_for(const LossLaw& law, double parameters, double loss) {
  const double left = loss - law.E - law.A / std::pow(parameters, law.alpha);
  return left > 0 ? std::pow(law.B / left, 1 / law.beta) : INFINITY;
}

double best_samples(const LossLaw& law, double parameters) {
  // At the best division of compute, alpha A / N^alpha = beta B / D^beta.
  return std::pow(law.beta * law.B * std::pow(parameters, law.alpha) / (law.alpha * law.A), 1 / law.beta);
}

}  // namespace tessera::laws
