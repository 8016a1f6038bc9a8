#include "eval/classification.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/random.h"

namespace tessera::eval {
namespace {

struct Sample {
  std::vector<float> logits;
  std::vector<int64_t> labels;
};

Sample draw(int64_t n, int64_t classes, uint64_t seed) {
  RandomStream stream(seed, "classification_test");
  Sample sample;
  for (int64_t i = 0; i < n * classes; ++i) sample.logits.push_back(static_cast<float>(3 * stream.normal()));
  for (int64_t i = 0; i < n; ++i)
    sample.labels.push_back(static_cast<int64_t>(stream.below(static_cast<uint64_t>(classes))));
  return sample;
}

TEST(Classification, TiesAreBrokenAsAsked) {
  const std::vector<float> logits = {1, 2, 2, 2, 0};
  EXPECT_EQ(rank_of_label(logits, 2, Ties::lowest_index), 1);
  EXPECT_EQ(rank_of_label(logits, 2, Ties::optimistic), 0);
  EXPECT_EQ(rank_of_label(logits, 2, Ties::pessimistic), 2);
  EXPECT_EQ(rank_of_label(logits, 4, Ties::optimistic), 4);
}

TEST(Classification, TopKGrowsToOneAndTopOneIsTheConfusionsDiagonal) {
  const Sample sample = draw(200, 7, 1);
  ClassificationMeter meter(7);
  meter.add(sample.logits, sample.labels);
  for (int64_t k = 1; k < 7; ++k) EXPECT_LE(meter.top(k), meter.top(k + 1));
  EXPECT_EQ(meter.top(7), 1);
  EXPECT_EQ(meter.top(100), 1);
  EXPECT_EQ(meter.top(0), 0);
  int64_t diagonal = 0, all = 0;
  for (int64_t c = 0; c < 7; ++c) diagonal += meter.confusion()[static_cast<size_t>(c * 8)];
  for (const int64_t count : meter.confusion()) all += count;
  EXPECT_EQ(static_cast<double>(diagonal) / 200, meter.top(1));
  EXPECT_EQ(all, 200);
}

TEST(Classification, BatchesAddUp) {
  const Sample sample = draw(50, 5, 2);
  ClassificationMeter whole(5), parts(5);
  whole.add(sample.logits, sample.labels);
  parts.add(std::span(sample.logits).first(15), std::span(sample.labels).first(3));
  parts.add({}, {});
  parts.add(std::span(sample.logits).subspan(15), std::span(sample.labels).subspan(3));
  EXPECT_EQ(whole.nll(), parts.nll());
  EXPECT_EQ(whole.brier(), parts.brier());
  EXPECT_EQ(whole.confusion(), parts.confusion());
  EXPECT_EQ(whole.calibration(10).ece, parts.calibration(10).ece);
}

TEST(Classification, UniformScoresHaveKnownValues) {
  ClassificationMeter meter(4);
  meter.add(std::vector<float>(8, 100.0f), std::vector<int64_t>{0, 3});
  EXPECT_NEAR(meter.nll(), std::log(4.0), 1e-12);
  EXPECT_NEAR(meter.brier(), 0.75 * 0.75 + 3 * 0.25 * 0.25, 1e-12);
  EXPECT_EQ(meter.top(1), 0.5);
  EXPECT_NEAR(meter.calibration(15).ece, 0.25, 1e-12);
  EXPECT_EQ(meter.calibration(4).bins[0].count, 2) << "a confidence on an edge belongs to the bin below";
}

TEST(Classification, PerClassScoresFollowTheirDefinitions) {
  ClassificationMeter meter(3);  // class 0: two right, one predicted as 1; class 1: one right; class 2 absent
  meter.add(std::vector<float>{1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0}, std::vector<int64_t>{0, 0, 0, 1});
  const auto scores = meter.per_class();
  EXPECT_DOUBLE_EQ(scores[0].precision, 1);
  EXPECT_DOUBLE_EQ(scores[0].recall, 2.0 / 3);
  EXPECT_DOUBLE_EQ(scores[0].f1, 0.8);
  EXPECT_DOUBLE_EQ(scores[1].precision, 0.5);
  EXPECT_DOUBLE_EQ(scores[1].recall, 1);
  EXPECT_DOUBLE_EQ(scores[2].f1, 0);
  EXPECT_DOUBLE_EQ(meter.mean_class_accuracy(), (2.0 / 3 + 1) / 2);
  EXPECT_DOUBLE_EQ(meter.macro_f1(), (0.8 + 2.0 / 3) / 2);
}

TEST(Classification, ADivergedModelIsNeverRight) {
  ClassificationMeter meter(3);
  meter.add(std::vector<float>{NAN, NAN, NAN, 0, NAN, 0}, std::vector<int64_t>{0, 0});
  EXPECT_EQ(meter.top(1), 0);
  EXPECT_EQ(meter.per_class()[0].correct, 0);
  EXPECT_TRUE(std::isnan(meter.nll()));
}

TEST(Classification, TheFittedTemperatureUndoesAScaling) {
  // For labels drawn from the logits' softmax, the best temperature is near 1; for k times the logits, near
  // k.
  Sample sample = draw(4000, 5, 3);
  RandomStream stream(4, "labels");
  for (size_t i = 0; i < sample.labels.size(); ++i) {
    double sum = 0;
    for (size_t c = 0; c < 5; ++c) sum += std::exp(static_cast<double>(sample.logits[i * 5 + c]));
    double left = stream.uniform() * sum;
    int64_t label = 0;
    while (label < 4 &&
           (left -= std::exp(static_cast<double>(sample.logits[i * 5 + static_cast<size_t>(label)]))) > 0)
      ++label;
    sample.labels[i] = label;
  }
  const double plain = fit_temperature(sample.logits, sample.labels, 5);
  EXPECT_NEAR(plain, 1, 0.1);
  for (float& x : sample.logits) x *= 4;
  EXPECT_NEAR(fit_temperature(sample.logits, sample.labels, 5), 4 * plain, 1e-5);
  EXPECT_LT(nll(sample.logits, sample.labels, 5, 4 * plain),
            nll(sample.logits, sample.labels, 5, 3.9 * plain));
}

TEST(Classification, ASubsetIgnoresOtherClassesAndSamples) {
  const std::vector<float> logits = {9, 1, 2, 9, 2, 1, 0, 0, 0};
  const std::vector<int64_t> chosen = {2, 1};
  EXPECT_EQ(subset_accuracy(logits, std::vector<int64_t>{2, 2, 0}, 3, chosen), 0.5);
  EXPECT_EQ(subset_accuracy(logits, std::vector<int64_t>{0, 0, 0}, 3, chosen), 0);
}

TEST(Classification, WrongInputIsNamed) {
  ClassificationMeter meter(3);
  EXPECT_THROW(meter.add(std::vector<float>(5), std::vector<int64_t>{0, 1}), Error);
  try {
    meter.add(std::vector<float>(6), std::vector<int64_t>{0, 3});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "metric: label of sample 1 is 3, must be 0 to 2");
  }
  EXPECT_EQ(meter.samples(), 0);
  EXPECT_EQ(meter.top(1), 0);
}

}  // namespace
}  // namespace tessera::eval
