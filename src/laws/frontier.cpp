#include "laws/frontier.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"

namespace tessera::laws {
namespace {

// Linear interpolation; NaN outside the range of x.
double interpolate(const std::vector<double>& x, const std::vector<double>& y, double at) {
  if (x.empty() || at < x.front() || at > x.back()) return NAN;
  const auto above = static_cast<size_t>(std::lower_bound(x.begin(), x.end(), at) - x.begin());
  if (above == 0) return y[0];
  const double part = (at - x[above - 1]) / (x[above] - x[above - 1]);
  return y[above - 1] + part * (y[above] - y[above - 1]);
}

void fit_lines(Frontier& frontier) {
  std::vector<double> flop, parameters, samples;
  for (const Optimum& optimum : frontier.optima) {
    flop.push_back(optimum.flop), parameters.push_back(optimum.parameters);
    samples.push_back(optimum.samples);
  }
  const Line size = fit_line(flop, parameters), length = fit_line(flop, samples);
  frontier.size_exponent = size.exponent, frontier.size_scale = size.scale;
  frontier.samples_exponent = length.exponent, frontier.samples_scale = length.scale;
}

// The minimum of the least-squares parabola in log(parameters); nothing if it is not inside the points'
// range or the parabola has no minimum.
std::optional<Optimum> minimum_of(const std::vector<Point>& points) {
  double middle = 0, flop = 0;
  for (const Point& point : points) middle += std::log(point.parameters), flop += std::log(point.flop);
  const auto count = static_cast<double>(points.size());
  middle /= count, flop = std::exp(flop / count);
  double s[5] = {}, t[3] = {}, low = INFINITY, high = -INFINITY, unit = 0;
  for (const Point& point : points) {
    const double x = std::log(point.parameters) - middle;
    low = std::min(low, x), high = std::max(high, x);
    unit += std::log(point.flop / (point.parameters * point.samples)) / count;
    double power = 1;
    for (int i = 0; i < 5; ++i, power *= x) {
      s[i] += power;
      if (i < 3) t[i] += power * point.loss;
    }
  }
  // Cramer's rule for the normal equations of c0 + c1 x + c2 x^2.
  const auto det = [](double a, double b, double c, double d, double e, double f, double g, double h,
                      double i) { return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g); };
  const double all = det(s[0], s[1], s[2], s[1], s[2], s[3], s[2], s[3], s[4]);
  if (!(std::abs(all) > 1e-12)) return {};
  const double c0 = det(t[0], s[1], s[2], t[1], s[2], s[3], t[2], s[3], s[4]) / all,
               c1 = det(s[0], t[0], s[2], s[1], t[1], s[3], s[2], t[2], s[4]) / all,
               c2 = det(s[0], s[1], t[0], s[1], s[2], t[1], s[2], s[3], t[2]) / all;
  const double at = -c1 / (2 * c2);
  if (!(c2 > 0) || at < low || at > high) return {};
  const double parameters = std::exp(middle + at);
  return Optimum{flop, parameters, flop / (std::exp(unit) * parameters), c0 + at * (c1 + at * c2)};
}

// Groups of points with the same budget and at least three sizes.
std::vector<std::vector<Point>> budgets_of(std::vector<Point> points) {
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.flop < b.flop; });
  std::vector<std::vector<Point>> groups;
  for (const Point& point : points) {
    if (groups.empty() || point.flop > 1.1 * groups.back().front().flop) groups.emplace_back();
    groups.back().push_back(point);
  }
  std::erase_if(groups, [](const auto& group) { return distinct(column(group, &Point::parameters)) < 3; });
  return groups;
}

std::vector<Optimum> optima_of(const std::vector<std::vector<Point>>& groups) {
  std::vector<Optimum> optima;
  for (const std::vector<Point>& group : groups)
    if (const auto optimum = minimum_of(group)) optima.push_back(*optimum);
  return optima;
}

}  // namespace

Line fit_line(const std::vector<double>& x, const std::vector<double>& y) {
  double mx = 0, my = 0, xx = 0, xy = 0;
  const auto count = static_cast<double>(x.size());
  for (size_t i = 0; i < x.size(); ++i) mx += std::log(x[i]) / count, my += std::log(y[i]) / count;
  for (size_t i = 0; i < x.size(); ++i) {
    const double dx = std::log(x[i]) - mx;
    xx += dx * dx, xy += dx * (std::log(y[i]) - my);
  }
  const double slope = xx > 0 ? xy / xx : 0;
  return {std::exp(my - slope * mx), slope};
}

std::vector<Curve> curves_of(const std::vector<Point>& points) {
  std::map<double, std::vector<Point>> sizes;
  for (const Point& point : points) sizes[point.parameters].push_back(point);
  std::vector<Curve> curves;
  for (auto& [parameters, own] : sizes) {
    if (own.size() < 2) continue;
    std::sort(own.begin(), own.end(), [](const Point& a, const Point& b) { return a.samples < b.samples; });
    Curve curve{
        .name = text(parameters), .parameters = parameters, .flop_per_sample = own[0].flop / own[0].samples};
    for (const Point& point : own) {
      if (!curve.samples.empty() && point.samples <= curve.samples.back()) continue;
      curve.samples.push_back(point.samples), curve.losses.push_back(point.loss);
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

Frontier fit_envelope(const std::vector<Curve>& curves, int budgets) {
  // A budget counts if every curve that starts below it and is best at it continues beyond it.
  double low = INFINITY, high = 0;
  std::vector<std::vector<double>> logs;
  for (const Curve& curve : curves) {
    if (curve.samples.empty()) fail_usage("curve '", printable(curve.name), "' has no losses");
    logs.emplace_back();
    for (const double samples : curve.samples)
      logs.back().push_back(std::log(samples * curve.flop_per_sample));
    low = std::min(low, logs.back().front()), high = std::max(high, logs.back().back());
  }
  Frontier frontier;
  std::vector<double> sizes;
  for (int i = 0; i < budgets; ++i) {
    const double flop = low + (high - low) * (i + 0.5) / budgets;
    Optimum best{.loss = INFINITY};
    for (size_t c = 0; c < curves.size(); ++c) {
      const double loss = interpolate(logs[c], curves[c].losses, flop);
      if (loss < best.loss)
        best = {std::exp(flop), curves[c].parameters, std::exp(flop) / curves[c].flop_per_sample, loss};
    }
    if (!std::isfinite(best.loss)) continue;
    frontier.optima.push_back(best);
    sizes.push_back(best.parameters);
  }
  if (distinct(sizes) < 2)
    fail_usage("approach 1: ", distinct(sizes), " size is best at some budget; at least 2 are needed");
  fit_lines(frontier);
  frontier.size_interval = {NAN, NAN}, frontier.samples_interval = {NAN, NAN};
  return frontier;
}

Frontier fit_iso_flop(const std::vector<Point>& points, int resamples, uint64_t seed) {
  const auto groups = budgets_of(points);
  Frontier frontier{.optima = optima_of(groups)};
  if (frontier.optima.size() < 2)
    fail_usage("approach 2: ", frontier.optima.size(),
               " budgets with a minimum between three or more sizes; at least 2 are needed");
  fit_lines(frontier);
  std::vector<double> sizes, lengths;
  for (int i = 0; i < resamples; ++i) {
    RandomStream random(seed, "bootstrap of budgets", static_cast<uint64_t>(i));
    std::vector<std::vector<Point>> drawn;
    for (const std::vector<Point>& group : groups) {
      drawn.emplace_back();
      while (drawn.back().size() < group.size()) drawn.back().push_back(group[random.below(group.size())]);
      if (distinct(column(drawn.back(), &Point::parameters)) < 3) drawn.pop_back();
    }
    Frontier own{.optima = optima_of(drawn)};
    if (own.optima.size() < 2) continue;
    fit_lines(own);
    sizes.push_back(own.size_exponent), lengths.push_back(own.samples_exponent);
  }
  frontier.size_interval = interval_of(sizes), frontier.samples_interval = interval_of(lengths);
  return frontier;
}

}  // namespace tessera::laws
