// Line charts and bars as self-contained SVG.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace tessera::report {

struct Point {
  double x = 0, y = 0;
};

struct Curve {
  std::string name{};
  std::vector<Point> points{};  // by ascending x; a non-finite point leaves a gap
  bool faint = false;           // thin and pale, in the next curve's colour, not in the legend: raw values
};

struct ChartOptions {
  std::string title{}, x_label{}, y_label{};
  double width = 520, height = 300;
  bool log_y = false;    // nonpositive points leave a gap
  bool percent = false;  // values are shares: 0.25 is printed as 25 %
  // The range of the values; if not finite, that of the points.
  double y_min = std::numeric_limits<double>::quiet_NaN(), y_max = std::numeric_limits<double>::quiet_NaN();
};

// Draws axes with ticks and grid, a legend of the named curves, and a tooltip on each point of a short curve.
// Long curves are thinned to the chart's resolution, but keep every peak. Without a finite point: "no data".
std::string line_chart(const std::vector<Curve>& curves, const ChartOptions& options);

struct Bar {
  std::string name{};
  double value = 0;
  std::string note{};  // after the value
};

// Draws horizontal bars from zero, one per line. `y_max` of the options is the full length; negative values
// have no bar.
std::string bar_chart(const std::vector<Bar>& bars, const ChartOptions& options);

// Returns about `count` round numbers (1, 2, 2.5 or 5 times a power of ten) in [low, high], at least one.
std::vector<double> nice_ticks(double low, double high, int count);

// Returns a moving average over `window` points, with the curve's length; gaps are left out of the average.
Curve smoothed(const Curve& curve, size_t window);

}  // namespace tessera::report
