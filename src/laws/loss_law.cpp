#include "laws/loss_law.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "laws/minimise.h"

namespace tessera::laws {
namespace {

double mean_log(const std::vector<Point>& points, double Point::*member) {
  double sum = 0;
  for (const Point& point : points) sum += std::log(point.*member);
  return sum / static_cast<double>(points.size());
}

// The objective in nearly independent variables: a and b are taken at the mean logarithms of parameters and
// samples.
class HuberSum {
 public:
  explicit HuberSum(const std::vector<Point>& points)
      : middle_n_(mean_log(points, &Point::parameters)), middle_d_(mean_log(points, &Point::samples)) {
    for (const Point& point : points)
      rows_.push_back({std::log(point.parameters) - middle_n_, std::log(point.samples) - middle_d_,
                       std::log(point.loss)});
  }

  std::vector<double> variables(const LossLaw& law) const {
    return {std::log(law.A) - law.alpha * middle_n_, std::log(law.B) - law.beta * middle_d_, std::log(law.E),
            law.alpha, law.beta};
  }

  LossLaw law(std::span<const double> x) const {
    return {std::exp(x[0] + x[3] * middle_n_), std::exp(x[1] + x[4] * middle_d_), std::exp(x[2]), x[3], x[4]};
  }

  double operator()(std::span<const double> x, std::span<double> gradient) const {
    std::fill(gradient.begin(), gradient.end(), 0.0);
    double sum = 0;
    for (const auto& [n, d, log_loss] : rows_) {
      const double by_size = x[0] - x[3] * n, by_samples = x[1] - x[4] * d;
      const double most = std::max({by_size, by_samples, x[2]});
      const double p = std::exp(by_size - most), q = std::exp(by_samples - most), r = std::exp(x[2] - most);
      const double all = p + q + r, residual = log_loss - most - std::log(all);
      sum += huber(residual);
      const double slope = std::clamp(residual / kHuber, -1.0, 1.0) / all;
      gradient[0] -= slope * p, gradient[3] += slope * p * n;
      gradient[1] -= slope * q, gradient[4] += slope * q * d;
      gradient[2] -= slope * r;
    }
    return sum;
  }

 private:
  struct Row {
    double n, d, log_loss;
  };
  double middle_n_, middle_d_;
  std::vector<Row> rows_;
};

LossFit fit_from(const HuberSum& sum, const std::vector<std::vector<double>>& starts) {
  LossFit best{.objective = INFINITY};
  for (const std::vector<double>& start : starts) {
    const Minimum found = minimise(sum, start);
    const LossLaw law = sum.law(found.x);
    if (found.value * kHuber < best.objective && std::isfinite(law.A) && std::isfinite(law.B))
      best = {law, found.value * kHuber};
  }
  return best;
}

}  // namespace

double LossLaw::loss(double parameters, double samples) const {
  return E + A / std::pow(parameters, alpha) + B / std::pow(samples, beta);
}

Allocation best_allocation(const LossLaw& law, double flop, double per_unit) {
  const double both = law.alpha + law.beta,
               scale = std::pow(law.alpha * law.A / (law.beta * law.B), 1 / both),
               parameters = scale * std::pow(flop / per_unit, law.beta / both),
               samples = flop / (per_unit * parameters);
  return {flop, parameters, samples, law.loss(parameters, samples)};
}

FlopPerUnit flop_per_unit(const std::vector<Point>& points) {
  std::vector<double> values;
  for (const Point& point : points) values.push_back(point.flop / (point.parameters * point.samples));
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.back() / values.front()};
}

double huber_sum(const LossLaw& law, const std::vector<Point>& points) {
  const HuberSum sum(points);
  std::vector<double> gradient(5);
  return kHuber * sum(sum.variables(law), gradient);
}

LossFit fit_loss_law(const std::vector<Point>& points) {
  const HuberSum sum(points);
  const std::vector<double> losses = column(points, &Point::loss);
  const double least = *std::min_element(losses.begin(), losses.end());
  std::vector<std::vector<double>> starts;
  // The three terms share the least loss in different ways at the mean point.
  for (const double floor : {0.2, 0.6, 0.9, 0.99})
    for (const double alpha : {0.2, 0.5, 1.0})
      for (const double beta : {0.2, 0.5, 1.0})
        for (const double share : {0.2, 0.8}) {
          const double rest = 1.3 * least - floor * least;
          starts.push_back(
              {std::log(share * rest), std::log((1 - share) * rest), std::log(floor * least), alpha, beta});
        }
  return fit_from(sum, starts);
}

LossFit fit_loss_law(const std::vector<Point>& points, const std::vector<LossLaw>& laws) {
  const HuberSum sum(points);
  std::vector<std::vector<double>> starts;
  for (const LossLaw& law : laws) starts.push_back(sum.variables(law));
  return fit_from(sum, starts);
}

std::vector<LossLaw> bootstrap(const std::vector<Point>& points, const LossFit& fit, int count,
                               uint64_t seed) {
  std::vector<LossLaw> laws;
  for (int i = 0; i < count; ++i) {
    RandomStream random(seed, "bootstrap", static_cast<uint64_t>(i));
    std::vector<Point> drawn;
    while (drawn.size() < points.size()) drawn.push_back(points[random.below(points.size())]);
    const HuberSum sum(drawn);
    const std::vector<double> middle = sum.variables(fit.law);
    std::vector<std::vector<double>> starts = {middle};
    for (const double factor : {0.7, 1.4}) {
      starts.push_back(middle);
      starts.back()[3] *= factor, starts.back()[4] *= factor;
    }
    const LossFit own = fit_from(sum, starts);
    if (std::isfinite(own.objective)) laws.push_back(own.law);
  }
  return laws;
}

Interval interval_of(std::vector<double> values, double share) {
  if (values.empty()) return {-INFINITY, INFINITY};
  std::sort(values.begin(), values.end());
  const auto at = [&](double quantile) {
    const double place = quantile * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {at(0.5 - share / 2), at(0.5 + share / 2)};
}

Interval interval_of(const std::vector<LossLaw>& laws, const std::function<double(const LossLaw&)>& quantity,
                     double share) {
  std::vector<double> values;
  for (const LossLaw& law : laws) values.push_back(quantity(law));
  return interval_of(std::move(values), share);
}

}  // namespace tessera::laws
