// Dots in named rows, one a series, each at its share between two sides: how several models decide category by category (Geirhos
// et al. 2019, Figure 4).
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace tessera::report {

struct DotSeries {
  std::string name{};
  std::vector<double> shares{};  // 0 to 1, one a row; one that is not finite has no dot
  double mean = std::numeric_limits<double>::quiet_NaN();  // a line through all rows; none where not finite
};

struct DotOptions {
  std::string title{}, label{};  // `label`: what the shares are of
  std::string left{}, right{};   // what the two sides stand for
  bool falling = false;          // the left side is a share of 1 and the right side one of 0
  double width = 720;
};

// Rows in their order from the top, with a legend of the series and a tooltip on each dot. Dots of one row stand a little below each
// other, so that equal shares do not hide one another. Without a finite share: "no data". An error where a series has not one
// share a row.
std::string dot_chart(const std::vector<std::string>& rows, const std::vector<DotSeries>& series,
                      const DotOptions& options);

}  // namespace tessera::report
