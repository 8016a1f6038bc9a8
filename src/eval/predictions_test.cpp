#include "eval/predictions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/random.h"

namespace tessera::eval {
namespace {

// Logits of three classes, more often right than wrong, and overconfident by `sharpness`.
struct Drawn {
  std::vector<float> logits;
  std::vector<int64_t> labels;
  explicit Drawn(int64_t samples, double sharpness = 1) {
    RandomStream random(3, "predictions test");
    for (int64_t i = 0; i < samples; ++i) {
      const int64_t label = i % 3;
      labels.push_back(label);
      for (int64_t c = 0; c < 3; ++c)
        logits.push_back(static_cast<float>(sharpness * (random.normal() + (c == label ? 1 : 0))));
    }
  }
  LabelledScores scores() const { return {logits, labels, 3}; }
};

std::map<std::string, double> numbers(const PredictionMeasures& measures) {
  return {measures.numbers.begin(), measures.numbers.end()};
}

TEST(Predictions, AgreeWithTheirMetrics) {
  const Drawn drawn(300);
  const auto found = measure_predictions(drawn.scores(), {});
  const auto all = numbers(found);
  const std::vector<bool> right = hits(drawn.scores());
  EXPECT_DOUBLE_EQ(all.at("top1"), static_cast<double>(std::count(right.begin(), right.end(), true)) / 300);
  EXPECT_LT(found.accuracy.low, all.at("top1"));
  EXPECT_GT(found.accuracy.high, all.at("top1"));
  EXPECT_GT(all.at("auroc"), 0.5);
  EXPECT_EQ(all.count("temperature"), 0u);
  ASSERT_EQ(found.roc.size(), 101u);
  // The area under the drawn curve is the AUROC, up to steps within a hundredth.
  double area = 0;
  for (const CurvePoint& point : found.roc) area += point.y / 101;
  EXPECT_NEAR(area, all.at("auroc"), 0.02);
  for (size_t k = 1; k < found.roc.size(); ++k) {
    EXPECT_GE(found.roc[k].y, found.roc[k - 1].y);
    EXPECT_LE(found.precision_recall[k].y, found.precision_recall[k - 1].y);
  }
}

// k of 100 samples are at k / 100 of a curve's axis, even if k / 100 * 100 is not k in floats.
TEST(Predictions, CurvesStepAtTheHundredths) {
  for (int64_t wrong = 0; wrong <= 100; ++wrong) {
    // By falling score of class 1: `wrong` samples of class 0, all of class 1, the rest of class 0.
    Drawn drawn(0);
    for (int64_t place = 0; place < 200; ++place) {
      drawn.labels.push_back(place >= wrong && place < wrong + 100 ? 1 : 0);
      const auto score = static_cast<float>(200 - place) / 100;
      drawn.logits.insert(drawn.logits.end(), {-score, score});
    }
    const auto found = measure_predictions({drawn.logits, drawn.labels, 2}, {});
    const double share = static_cast<double>(wrong) / 100;
    for (size_t k = 0; k <= 100; ++k) {
      // Class 1: nothing before `wrong` / 100, everything from there on. Class 0: 1 - share up to the end.
      const auto at = static_cast<int64_t>(k);
      const double of_one = at >= wrong ? 1 : 0, of_zero = at == 100 ? 1 : 1 - share;
      EXPECT_NEAR(found.roc[k].y, (of_one + of_zero) / 2, 1e-12) << wrong << " at " << k;
      // Class 1's precision is highest at full recall. Class 0's is 1 up to the wrong ones, which come last.
      const double last = 100.0 / static_cast<double>(100 + wrong);
      const double one = at == 0 ? 1 : last, zero = at <= 100 - wrong ? 1 : 0.5;
      EXPECT_NEAR(found.precision_recall[k].y, (one + zero) / 2, 1e-12) << wrong << " at " << k;
    }
  }
}

// Logits five times too large: the temperature reduces the calibration error of the other samples.
TEST(Predictions, ATemperatureIsMeasuredOnTheRest) {
  const Drawn sure(3000, 5);
  const auto found = measure_predictions(sure.scores(), {.temperature_share = 0.3, .seed = 1});
  const auto all = numbers(found);
  EXPECT_NEAR(found.temperature, 5, 0.7);  // standard error about 0.2
  EXPECT_LT(all.at("rest_ece_scaled"), 0.5 * all.at("rest_ece"));
}

// The options alone give those images: a fit on their scores has the same temperature.
TEST(Predictions, ATemperatureIsFittedOnTheSamplesThatAreNamed) {
  const Drawn sure(200, 5);
  const PredictionOptions options{.temperature_share = 0.3, .seed = 4};
  std::vector<int64_t> named = temperature_samples(200, options);
  Drawn aside(0);
  for (const int64_t i : named) {
    const auto row = sure.scores().row(i);
    aside.logits.insert(aside.logits.end(), row.begin(), row.end());
    aside.labels.push_back(sure.labels[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(fit_temperature(aside.logits, aside.labels, 3),
            measure_predictions(sure.scores(), options).temperature);
  EXPECT_EQ(named.size(), 60u);
  std::sort(named.begin(), named.end());
  EXPECT_EQ(std::unique(named.begin(), named.end()), named.end());
  EXPECT_TRUE(temperature_samples(200, {}).empty());
}

// Scores that are always right are never overconfident; ones that are always wrong are never flat enough.
TEST(Predictions, ATemperatureEndsAtTheEndsOfItsSearch) {
  const std::vector<float> logits = {1, 0, 0, 1};
  const std::vector<int64_t> right = {0, 1}, wrong = {1, 0};
  EXPECT_NEAR(fit_temperature(logits, right, 2) / kLowestTemperature, 1, 1e-9);
  EXPECT_NEAR(fit_temperature(logits, wrong, 2) / kHighestTemperature, 1, 1e-9);
  EXPECT_NEAR(fit_temperature(std::vector<float>(4), right, 2) / kHighestTemperature, 1, 1e-9);
}

TEST(Predictions, RefuseWhatHasNoAnswer) {
  Drawn drawn(6);
  EXPECT_THROW(measure_predictions(drawn.scores(), {.temperature_share = 0.01}), Error);
  std::fill(drawn.labels.begin(), drawn.labels.end(), 1);
  EXPECT_THROW(measure_predictions(drawn.scores(), {}), Error);
}

}  // namespace
}  // namespace tessera::eval
