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
  std::vector<Point> points{};  // by ascending x; a point that is not finite leaves a gap
  bool faint = false;  // thin, pale, not in the legend, coloured as the next: raw values under their mean
};

struct ChartOptions {
  std::string title{}, x_label{}, y_label{};
  double width = 520, height = 300;
  bool log_y = false;    // points that are not positive leave a gap
  bool percent = false;  // values are shares: 0.25 is written 25 %
  // Range of the values; where not finite it is taken from the points.
  double y_min = std::numeric_limits<double>::quiet_NaN(), y_max = std::numeric_limits<double>::quiet_NaN();
};

// Axes with ticks and grid, a legend of the curves that have names, a tooltip on each point of a short
// curve. Long curves are thinned to what the width can show, keeping every peak. Without a finite point: "no
// data".
std::string line_chart(const std::vector<Curve>& curves, const ChartOptions& options);

struct Bar {
  std::string name{};
  double value = 0;
  std::string note{};  // after the value
};

// Horizontal bars from zero, one line each. `y_max` of the options is the full length; negative values are
// empty.
std::string bar_chart(const std::vector<Bar>& bars, const ChartOptions& options);

// Round numbers (1, 2, 2.5 or 5 times a power of ten) inside [low, high], about `count` of them, at least
// one.
std::vector<double> nice_ticks(double low, double high, int count);

// A moving mean over `window` points, as a curve of the same length; gaps are left out of the mean.
Curve smoothed(const Curve& curve, size_t window);

}  // namespace tessera::report
