#include "report/matrix_chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "report/report_testing.h"

namespace tessera::report {
namespace {

TEST(MatrixChart, IsWellFormedWhateverTheNames) {
  const Matrix matrix{{"<a>", "b & \"c\""}, {"x", "y", "z"}, {0.1, 0.5, NAN, 1, INFINITY, -2}};
  const std::string svg = matrix_chart(matrix, {.title = "a < b", .row_label = "r", .column_label = "c"});
  EXPECT_EQ(testing::XmlReader(svg).problem, "");
  EXPECT_NE(svg.find("pale -2"), std::string::npos);
  EXPECT_THROW(matrix_chart({{"a"}, {"b"}, {1, 2}}, {}), Error);
}

TEST(ScatterChart, DrawsADotForEachFinitePoint) {
  const std::string svg =
      scatter_chart({{0, 1, 0}, {2, 3, 1}, {NAN, 1, 1}}, {"<one>", "two"}, {.title = "dots"});
  EXPECT_EQ(testing::XmlReader(svg).problem, "");
  size_t circles = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++circles;
  EXPECT_EQ(circles, 4u);  // two of the legend
  EXPECT_NE(scatter_chart({}, {}, {}).find("no data"), std::string::npos);
}

}  // namespace
}  // namespace tessera::report
