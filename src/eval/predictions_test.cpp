#include "eval/predictions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/random.h"

namespace tessera::eval {
namespace {

// Three classes whose logits are right more often than not, and too sure by `sharpness`.
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
  // The area under the drawn curve is the AUROC, but for the steps inside a hundredth.
  double area = 0;
  for (const CurvePoint& point : found.roc) area += point.y / 101;
  EXPECT_NEAR(area, all.at("auroc"), 0.02);
  for (size_t k = 1; k < found.roc.size(); ++k) {
    EXPECT_GE(found.roc[k].y, found.roc[k - 1].y);
    EXPECT_LE(found.precision_recall[k].y, found.precision_recall[k - 1].y);
  }
}

// Logits five times too large: the temperature brings the error of the other samples down.
TEST(Predictions, ATemperatureIsMeasuredOnTheRest) {
  const Drawn sure(3000, 5);
  const auto found = measure_predictions(sure.scores(), {.temperature_share = 0.3, .seed = 1});
  const auto all = numbers(found);
  EXPECT_NEAR(found.temperature, 5, 0.7);  // of drawn numbers: a standard error of about 0.2
  EXPECT_LT(all.at("rest_ece_scaled"), 0.5 * all.at("rest_ece"));
}

TEST(Predictions, RefuseWhatHasNoAnswer) {
  Drawn drawn(6);
  EXPECT_THROW(measure_predictions(drawn.scores(), {.temperature_share = 0.01}), Error);
  std::fill(drawn.labels.begin(), drawn.labels.end(), 1);
  EXPECT_THROW(measure_predictions(drawn.scores(), {}), Error);
}

}  // namespace
}  // namespace tessera::eval
