// Dots in named rows, one per series, each placed between two sides by its share: decisions of several models
// by category (Geirhos et al. 2019, Figure 4).
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace tessera::report {

struct DotSeries {
  std::string name{};
  std::vector<double> shares{};  // 0 to 1, one per row; non-finite shares have no dot
  double mean = std::numeric_limits<double>::quiet_NaN();  // a line through all rows; none if not finite
};

struct DotOptions {
  std::string title{}, label{};  // `label`: the name of the shares
  std::string left{}, right{};   // the meaning of the two sides
  bool falling = false;          // a share of 1 is at the left side, a share of 0 at the right
  double width = 720;
};

// Draws rows from top to bottom, with a legend of the series and a tooltip on each dot. Dots in a row are
// slightly offset vertically, so that equal shares do not hide each other. Without a finite share: "no data".
// Throws unless each series has one share per row.
std::string dot_chart(const std::vector<std::string>& rows, const std::vector<DotSeries>& series,
                      const DotOptions& options);

}  // namespace tessera::report
