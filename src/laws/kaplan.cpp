#include "laws/kaplan.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/random.h"
#include "laws/minimise.h"

namespace tessera::laws {
namespace {

constexpr int kResamples = 200;

PowerLaw law_if_enough(const std::vector<Point>& points, double Point::*member) {
  const std::vector<double> x = column(points, member);
  return distinct(x) < 3 ? PowerLaw{} : fit_power_law(x, column(points, &Point::loss));
}

// Keeps, for each value of `member`, the point that comes first in the order.
template <class Before>
std::vector<Point> one_of_each(const std::vector<Point>& points, double Point::*member,
                               const Before& before) {
  std::map<int64_t, Point> best;  // values within 1 % share a key
  for (const Point& point : points) {
    const auto key = static_cast<int64_t>(std::llround(100 * std::log(point.*member)));
    const auto [found, fresh] = best.emplace(key, point);
    if (!fresh && before(point, found->second)) found->second = point;
  }
  std::vector<Point> kept;
  for (auto& [key, point] : best) kept.push_back(std::move(point));
  return kept;
}

std::vector<Point> least_so_far(std::vector<Point> points) {
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.flop < b.flop; });
  std::vector<Point> kept;
  for (const Point& point : points)
    if (kept.empty() || point.loss < kept.back().loss) kept.push_back(point);
  return kept;
}

}  // namespace

PowerLaw fit_power_law(const std::vector<double>& x, const std::vector<double>& losses, uint64_t seed) {
  const auto law_of = [](const Line& line) {
    return PowerLaw{std::exp(std::log(line.scale) / -line.exponent), -line.exponent};
  };
  PowerLaw law = law_of(fit_line(x, losses));
  std::vector<double> exponents;
  for (int i = 0; i < kResamples; ++i) {
    RandomStream random(seed, "bootstrap of a power law", static_cast<uint64_t>(i));
    std::vector<double> a, b;
    while (a.size() < x.size()) {
      const auto place = static_cast<size_t>(random.below(x.size()));
      a.push_back(x[place]), b.push_back(losses[place]);
    }
    if (distinct(a) >= 2) exponents.push_back(-fit_line(a, b).exponent);
  }
  law.interval = interval_of(exponents);
  return law;
}

KaplanLaws fit_kaplan(const std::vector<Point>& points) {
  const auto longer = [](const Point& a, const Point& b) { return a.samples > b.samples; };
  const auto better = [](const Point& a, const Point& b) { return a.loss < b.loss; };
  return {law_if_enough(one_of_each(points, &Point::parameters, longer), &Point::parameters),
          law_if_enough(one_of_each(points, &Point::samples, better), &Point::samples),
          law_if_enough(least_so_far(points), &Point::flop)};
}

double JointLaw::loss(double parameters, double samples) const {
  return std::pow(std::pow(n_c / parameters, alpha_n / alpha_d) + d_c / samples, alpha_d);
}

JointLaw fit_joint_law(const std::vector<Point>& points) {
  double n = 0, d = 0, level = 0;
  const auto count = static_cast<double>(points.size());
  for (const Point& point : points)
    n += std::log(point.parameters) / count, d += std::log(point.samples) / count,
        level += std::log(point.loss) / count;
  // x: log(alpha_n), log(alpha_d), and the logarithms of both terms' losses at the mean point.
  const auto log_loss = [&](std::span<const double> x, double log_n, double log_d) {
    const double alpha_n = std::exp(x[0]), alpha_d = std::exp(x[1]);
    const double p = (x[2] - alpha_n * (log_n - n)) / alpha_d, q = x[3] / alpha_d - (log_d - d);
    const double most = std::max(p, q);
    return alpha_d * (most + std::log(std::exp(p - most) + std::exp(q - most)));
  };
  const Objective sum = with_gradient([&](std::span<const double> x) {
    double all = 0;
    for (const Point& point : points)
      all += huber(std::log(point.loss) - log_loss(x, std::log(point.parameters), std::log(point.samples)));
    return all;
  });
  Minimum best{.value = INFINITY};
  for (const double alpha_n : {0.05, 0.2})
    for (const double alpha_d : {0.05, 0.2})
      for (const double share : {0.3, 1.0}) {
        const Minimum found = minimise(
            sum, {std::log(alpha_n), std::log(alpha_d), level - 0.5 * share, level - 0.5 / share}, 300);
        if (found.value < best.value) best = found;
      }
  const double alpha_n = std::exp(best.x[0]), alpha_d = std::exp(best.x[1]);
  return {alpha_n, alpha_d, std::exp(n + best.x[2] / alpha_n), std::exp(d + best.x[3] / alpha_d),
          kHuber * best.value};
}

PowerLaw fit_critical_batch(const std::vector<Point>& points) {
  std::vector<double> losses, scales;
  for (const Point& point : points)
    if (std::isfinite(point.noise_scale)) losses.push_back(point.loss), scales.push_back(point.noise_scale);
  if (losses.size() < 3 || distinct(losses) < 2) return {};
  const Line line = fit_line(losses, scales);
  return {line.scale, -1 / line.exponent, {NAN, NAN}};
}

}  // namespace tessera::laws
