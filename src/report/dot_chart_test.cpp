#include "report/dot_chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "report/report_testing.h"

namespace tessera::report {
namespace {

// Returns the value of an attribute of each element of that name, in order.
std::vector<double> numbers_of(const std::string& svg, const std::string& element,
                               const std::string& attribute) {
  std::vector<double> out;
  for (size_t at = svg.find("<" + element + " "); at != std::string::npos;
       at = svg.find("<" + element + " ", at + 1)) {
    const size_t value = svg.find(" " + attribute + "=\"", at) + attribute.size() + 3;
    out.push_back(std::stod(svg.substr(value)));
  }
  return out;
}

const std::vector<std::string> kRows = {"cat", "a <dog>", "none"};

std::string two_models(bool falling) {
  return dot_chart(kRows, {{"one & a", {1, 0.5, NAN}, 0.75}, {"two", {0, 0.25, NAN}, NAN}},
                   {.title = "Shape <bias>",
                    .label = "share of shape",
                    .left = "all shape",
                    .right = "all texture",
                    .falling = falling});
}

TEST(DotChart, NamesEveryRowAndBothSides) {
  const std::string svg = two_models(true);
  EXPECT_EQ(testing::XmlReader(svg).problem, "");
  for (const char* words : {">cat<", ">a &lt;dog&gt;<", ">none<", ">all shape<", ">all texture<", ">0 %<",
                            ">100 %<", ">one &amp; a  75 %<", ">two<"})
    EXPECT_NE(svg.find(words), std::string::npos) << words;
  EXPECT_NE(svg.find("<title>two, a &lt;dog&gt;: 25 %</title>"), std::string::npos);
}

TEST(DotChart, ADotStandsAtItsShareBetweenTheSides) {
  // Two in the legend, then two rows of `one`, then those of `two`.
  const std::vector<double> x = numbers_of(two_models(true), "circle", "cx");
  ASSERT_EQ(x.size(), 6u) << "a share that is not finite has no dot";
  const double all = x[2], nothing = x[4];
  EXPECT_LT(all, nothing) << "falling: a share of 1 stands on the left";
  EXPECT_NEAR(x[3], (all + nothing) / 2, 0.11);
  EXPECT_NEAR(x[5], nothing + (all - nothing) / 4, 0.11);
  const std::vector<double> rising = numbers_of(two_models(false), "circle", "cx");
  EXPECT_GT(rising[2], rising[4]);
}

TEST(DotChart, TheMeanIsALineThroughAllRowsInTheColourOfItsSeries) {
  const std::string svg = two_models(true);
  const size_t at = svg.find("<path d=\"M");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(svg.find("<path d=\"M", at + 1), std::string::npos) << "the second has no mean";
  const std::vector<double> x = numbers_of(svg, "circle", "cx");
  EXPECT_NEAR(std::stod(svg.substr(at + 10)), x[4] + 0.75 * (x[2] - x[4]), 0.11);
  EXPECT_NE(svg.find("stroke=\"#3b6fd4\"", at), std::string::npos);
}

TEST(DotChart, EqualSharesOfTwoSeriesStandBelowEachOther) {
  const std::string svg = dot_chart({"cat"}, {{"one", {0.5}}, {"two", {0.5}}}, {});
  const std::vector<double> y = numbers_of(svg, "circle", "cy");
  ASSERT_EQ(y.size(), 4u);
  EXPECT_GT(y[3], y[2]);
}

TEST(DotChart, StaysInsideANarrowDrawing) {
  std::vector<DotSeries> series;
  for (const char* name : {"vit", "vil", "illama", "visionllama_plain", "visionllama_pyramid"})
    series.push_back({name, {0, 1}, 0.5});
  const std::string svg = dot_chart({"a category of a long name", "b"}, series, {.width = 320});
  EXPECT_EQ(testing::XmlReader(svg).problem, "");
  for (const double x : numbers_of(svg, "circle", "cx")) {
    EXPECT_GE(x, 4.5);
    EXPECT_LE(x, 320 - 4.5);
  }
  for (const DotSeries& one : series)
    EXPECT_NE(svg.find(">" + one.name + "  50 %<"), std::string::npos) << one.name;
}

// Colours of words, grid and axis follow the page; series colours are the same in both themes.
TEST(DotChart, FollowsTheLightAndTheDarkLook) {
  const std::string svg = two_models(true);
  for (const char* style :
       {"class=\"ts-ink\"", "class=\"ts-label\"", "class=\"ts-grid\"", "class=\"ts-axis\""})
    EXPECT_NE(svg.find(style), std::string::npos) << style;
  EXPECT_EQ(svg.find("fill=\"#000"), std::string::npos);
}

TEST(DotChart, NothingToShowIsSaidAndAMissingShareIsAnError) {
  EXPECT_NE(dot_chart({}, {}, {}).find("no data"), std::string::npos);
  EXPECT_NE(dot_chart({"cat"}, {{"one", {NAN}}}, {}).find("no data"), std::string::npos);
  EXPECT_THROW(dot_chart({"cat", "dog"}, {{"one", {0.5}}}, {}), Error);
}

}  // namespace
}  // namespace tessera::report
