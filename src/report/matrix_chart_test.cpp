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

TEST(MatrixChart, AMarkStandsBetweenTheCellsThatItIsBetween) {
  const Matrix matrix{{"0", "1"}, {"0", "1"}, {1, 2, 3, 4}};
  const auto place = [&](double row, double column, const char* axis) {
    const std::string svg = matrix_chart(matrix, {.marks = {{row, column, "B", "<runs> & b"}}});
    EXPECT_EQ(testing::XmlReader(svg).problem, "");
    EXPECT_NE(svg.find(">B</text>"), std::string::npos);
    EXPECT_NE(svg.find("<title>&lt;runs&gt; &amp; b</title>"), std::string::npos);
    const size_t circle = svg.find("<circle");
    return std::stod(svg.substr(svg.find(std::string(axis) + "=\"", circle) + 4));
  };
  EXPECT_NEAR(place(0.5, 0.25, "cx"), place(0, 0, "cx") * 0.75 + place(0, 1, "cx") * 0.25, 0.11);
  EXPECT_NEAR(place(0.5, 0.25, "cy"), (place(0, 0, "cy") + place(1, 0, "cy")) / 2, 0.11);
  EXPECT_EQ(matrix_chart(matrix, {}).find("<circle"), std::string::npos);
}

TEST(ScatterChart, DrawsADotForEachFinitePoint) {
  const std::string svg =
      scatter_chart({{0, 1, 0}, {2, 3, 1}, {NAN, 1, 1}}, {"<one>", "two"}, {.title = "dots"});
  EXPECT_EQ(testing::XmlReader(svg).problem, "");
  size_t circles = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++circles;
  EXPECT_EQ(circles, 4u);  // two in the legend
  EXPECT_NE(scatter_chart({}, {}, {}).find("no data"), std::string::npos);
}

}  // namespace
}  // namespace tessera::report
