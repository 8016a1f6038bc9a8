#include "report/charts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "core/error.h"
#include "report/heat_map.h"
#include "report/report_testing.h"

namespace tessera::report {
namespace {

using testing::XmlReader;

size_t count_of(const std::string& haystack, const std::string& needle) {
  size_t count = 0;
  for (size_t at = haystack.find(needle); at != std::string::npos; at = haystack.find(needle, at + 1))
    ++count;
  return count;
}

// Returns the points of the i-th <path>, as drawn.
std::vector<Point> drawn_points(const std::string& svg, size_t index = 0) {
  size_t at = 0;
  for (size_t i = 0; i <= index; ++i) at = svg.find("<path d=\"", at) + 9;
  std::string data = svg.substr(at, svg.find('"', at) - at);
  for (char& c : data)
    if (c == 'M' || c == 'L') c = ' ';
  std::istringstream in(data);
  std::vector<Point> points;
  for (Point p; in >> p.x >> p.y;) points.push_back(p);
  return points;
}

Curve line(const std::string& name, int n) {
  Curve curve{name, {}};
  for (int i = 0; i < n; ++i) curve.points.push_back({double(i), std::sin(i * 0.1)});
  return curve;
}

// On a phone five models do not fit next to the title.
TEST(LineChart, NamesEveryCurveHoweverNarrowItIs) {
  std::vector<Curve> curves;
  for (const char* name : {"vit", "vil", "illama", "visionllama_plain", "visionllama_pyramid"})
    curves.push_back({.name = name, .points = {{0, 1}, {1, 2}}});
  for (const double width : {320, 720}) {
    const std::string svg =
        line_chart(curves, {.title = "Accuracy over resolution", .y_label = "top-1", .width = width});
    for (const Curve& curve : curves) EXPECT_NE(svg.find(">" + curve.name + "<"), std::string::npos) << width;
  }
}

// A first accuracy of 0 % needs an axis of shares, not one from -100 % to 100 %.
TEST(LineChart, SharesThatAreAllTheSameStandBetweenNoneAndAll) {
  for (const double value : {0.0, 0.25, 1.0}) {
    const std::string svg = line_chart({{.name = "top1", .points = {{1, value}, {2, value}}}},
                                       {.title = "Accuracy", .percent = true});
    EXPECT_EQ(svg.find(">-"), std::string::npos) << value;
    EXPECT_EQ(svg.find(">120 %<"), std::string::npos) << value;
    for (const char* tick : {">0 %<", ">100 %<"}) EXPECT_NE(svg.find(tick), std::string::npos) << value;
  }
}

TEST(NiceTicks, AreRoundInsideAndAboutAsManyAsAsked) {
  EXPECT_EQ(nice_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(nice_ticks(0, 1, 4), (std::vector<double>{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(nice_ticks(3, 3, 5), (std::vector<double>{3}));
  for (const double low : {-1e7, -3.3, 0.0, 1e-9, 0.07, 123456.0})
    for (const double span : {1e-8, 0.3, 1.0, 7.77, 1e6}) {
      const auto ticks = nice_ticks(low, low + span, 6);
      ASSERT_GE(ticks.size(), 2u) << low << " " << span;
      EXPECT_LE(ticks.size(), 14u) << low << " " << span;
      EXPECT_GE(ticks.front(), low - span * 1e-6);
      EXPECT_LE(ticks.back(), low + span * (1 + 1e-6));
    }
}

TEST(LineChart, PlacesPointsInProportion) {
  ChartOptions options;
  options.y_min = 0, options.y_max = 4;
  const std::string svg = line_chart({{"a", {{0, 0}, {5, 2}, {10, 4}}}}, options);
  EXPECT_EQ(XmlReader(svg).problem, "");
  const auto points = drawn_points(svg);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_NEAR(points[1].x, (points[0].x + points[2].x) / 2, 0.11);
  EXPECT_NEAR(points[1].y, (points[0].y + points[2].y) / 2, 0.11);
  EXPECT_GT(points[0].y, points[2].y) << "larger values stand higher";
  for (const Point& p : points) {
    EXPECT_GE(p.x, 0);
    EXPECT_LE(p.x, options.width);
    EXPECT_GE(p.y, 0);
    EXPECT_LE(p.y, options.height);
  }
}

TEST(LineChart, DecadesAreEquallyFarApartOnALogAxis) {
  ChartOptions options;
  options.log_y = true;
  const auto points = drawn_points(line_chart({{"a", {{0, 1e-3}, {1, 1e-1}, {2, 10}}}}, options));
  ASSERT_EQ(points.size(), 3u);
  EXPECT_NEAR(points[0].y - points[1].y, points[1].y - points[2].y, 0.11);
}

TEST(LineChart, AValueThatIsNotFiniteLeavesAGap) {
  const std::string svg = line_chart({{"a", {{0, 1}, {1, 2}, {2, NAN}, {3, 3}, {4, INFINITY}, {5, 1}}}}, {});
  const size_t at = svg.find("<path d=\"");
  const std::string data = svg.substr(at, svg.find("/>", at) - at);
  EXPECT_EQ(count_of(data, "M"), 3u) << data;
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(LineChart, WholeNumbersGetWholeTicks) {
  const std::string whole = line_chart({{"", {{1, 1}, {2, 3}}}}, {.x_label = "epoch"});
  EXPECT_NE(whole.find(">1</text>"), std::string::npos);
  EXPECT_EQ(whole.find(">1.2</text>"), std::string::npos);
  EXPECT_NE(line_chart({{"", {{1.1, 1}, {2, 3}}}}, {}).find(">1.2</text>"), std::string::npos);
}

TEST(LineChart, NothingToShowIsSaid) {
  for (const auto& curves : {std::vector<Curve>{}, {{"a", {}}}, {{"a", {{0, NAN}}}}}) {
    const std::string svg = line_chart(curves, {});
    EXPECT_EQ(XmlReader(svg).problem, "");
    EXPECT_NE(svg.find("no data"), std::string::npos);
  }
  EXPECT_EQ(line_chart({{"a", {{3, 7}}}}, {}).find("no data"), std::string::npos) << "one point is data";
}

TEST(LineChart, ThinningKeepsEveryPeak) {
  Curve curve{"loss", {}};
  for (int i = 0; i < 200000; ++i)
    curve.points.push_back({double(i), i == 123456 ? 50.0 : i == 77777 ? -50.0 : 0.0});
  const std::string svg = line_chart({curve}, {});
  EXPECT_LT(svg.size(), 60000u);
  const auto points = drawn_points(svg);
  double highest = 1e9, lowest = 0;
  for (const Point& p : points) highest = std::min(highest, p.y), lowest = std::max(lowest, p.y);
  EXPECT_LT(highest, points.front().y - 50);
  EXPECT_GT(lowest, points.front().y + 50);
}

TEST(LineChart, LegendNamesCurvesAndEscapesThem) {
  const std::string svg = line_chart({line("train", 5), line("<script>alert(1)</script>", 5)}, {});
  EXPECT_EQ(XmlReader(svg).problem, "");
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_NE(svg.find(">train</text>"), std::string::npos);
}

TEST(Smoothed, IsTheMeanOfTheNeighbours) {
  const Curve out = smoothed({"a", {{0, 0}, {1, 3}, {2, 6}, {3, NAN}, {4, 8}}}, 3);
  EXPECT_DOUBLE_EQ(out.points[0].y, 1.5);
  EXPECT_DOUBLE_EQ(out.points[1].y, 3);
  EXPECT_DOUBLE_EQ(out.points[2].y, 4.5);
  EXPECT_TRUE(std::isnan(out.points[3].y));
  EXPECT_DOUBLE_EQ(out.points[4].y, 8);
}

TEST(BarChart, LengthsAreInProportion) {
  const std::string svg = bar_chart({{"cat", 0.5, ""}, {"dog", 1.0, "best"}, {"none", -1, ""}}, {});
  EXPECT_EQ(XmlReader(svg).problem, "");
  std::vector<double> widths;
  for (size_t at = svg.find("class=\"ts-bar\""); at != std::string::npos;
       at = svg.find("class=\"ts-bar\"", at + 1)) {
    const size_t width = svg.rfind(" width=\"", at) + 8;
    widths.push_back(std::stod(svg.substr(width)));
  }
  ASSERT_EQ(widths.size(), 3u);
  EXPECT_NEAR(widths[0] * 2, widths[1], 0.11);
  EXPECT_EQ(widths[2], 0);
  EXPECT_EQ(XmlReader(bar_chart({}, {})).problem, "");
}

TEST(ConfusionChart, DrawsEachCountThatIsNotZero) {
  const Confusion confusion{{"cat", "dog", "a<b"}, {8, 2, 0, 0, 5, 5, 0, 0, 0}};
  const std::string svg = confusion_chart(confusion);
  EXPECT_EQ(XmlReader(svg).problem, "");
  EXPECT_EQ(count_of(svg, "class=\"ts-bar\""), 2u);
  EXPECT_EQ(count_of(svg, "class=\"ts-miss\""), 2u);
  EXPECT_NE(svg.find("<title>cat taken for dog: 2 of 10 (20 %)</title>"), std::string::npos);
  EXPECT_NE(svg.find("<title>dog taken for a&lt;b: 5 of 10 (50 %)</title>"), std::string::npos);
}

TEST(ConfusionChart, RefusesWhatIsNoMatrix) {
  EXPECT_THROW(confusion_chart({{"a", "b"}, {1, 2, 3}}), Error);
  EXPECT_THROW(confusion_chart({{"a"}, {-1}}), Error);
  const std::vector<std::string> names(kMostClasses + 1, "c");
  EXPECT_THROW(confusion_chart({names, std::vector<int64_t>(names.size() * names.size())}), Error);
}

TEST(MostConfused, AreSortedAndCut) {
  const Confusion confusion{{"a", "b", "c"}, {9, 1, 0, 3, 5, 2, 0, 7, 3}};
  const auto pairs = most_confused(confusion, 2);
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].truth, 2u);
  EXPECT_EQ(pairs[0].predicted, 1u);
  EXPECT_DOUBLE_EQ(pairs[0].share, 0.7);
  EXPECT_EQ(pairs[1].count, 3);
}

}  // namespace
}  // namespace tessera::report
