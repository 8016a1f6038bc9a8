#include "eval/discrimination.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/random.h"

namespace tessera::eval {
namespace {

OneAgainstRest drawn(int samples, int levels, uint64_t seed) {
  RandomStream stream(seed, "discrimination_test");
  OneAgainstRest out;
  for (int i = 0; i < samples; ++i) {
    out.positive.push_back(stream.chance(0.4));
    out.scores.push_back(static_cast<double>(stream.below(static_cast<uint64_t>(levels))));
  }
  out.positive[0] = true, out.positive[1] = false;
  return out;
}

TEST(Auroc, IsTheShareOfPairsInOrderAndATieIsHalfAPair) {
  for (const int levels : {3, 1000}) {
    const OneAgainstRest samples = drawn(80, levels, 1);
    double right = 0, pairs = 0;
    for (size_t i = 0; i < samples.scores.size(); ++i)
      for (size_t j = 0; j < samples.scores.size(); ++j)
        if (samples.positive[i] && !samples.positive[j]) {
          pairs += 1;
          right += samples.scores[i] > samples.scores[j]    ? 1
                   : samples.scores[i] == samples.scores[j] ? 0.5
                                                            : 0;
        }
    EXPECT_NEAR(auroc(samples), right / pairs, 1e-12);
  }
}

TEST(Auroc, OneClassAloneIsRefused) {
  EXPECT_THROW(auroc({{1, 2}, {true, true}}), Error);
  EXPECT_THROW(auroc({{1, 2}, {false, false}}), Error);
  EXPECT_THROW(average_precision({{1, 2}, {false, false}}), Error);
}

TEST(Curves, TheAreaUnderTheirStepsIsTheNumber) {
  const OneAgainstRest samples = drawn(200, 40, 2);
  const auto roc = roc_curve(samples), precision = precision_recall_curve(samples);
  double area = 0, average = 0;
  for (size_t i = 1; i < roc.size(); ++i) area += (roc[i].x - roc[i - 1].x) * (roc[i].y + roc[i - 1].y) / 2;
  for (size_t i = 0; i + 1 < precision.size(); ++i)
    average += (precision[i].x - precision[i + 1].x) * precision[i].y;
  EXPECT_NEAR(auroc(samples), area, 1e-12);
  EXPECT_NEAR(average_precision(samples), average, 1e-12);
}

TEST(Agreement, NoneBeyondChanceIsZeroAndAllIsOne) {
  const std::vector<int64_t> independent = {6, 2, 3, 1}, perfect = {5, 0, 0, 7};
  for (const auto f : {+[](std::span<const int64_t> c) { return kappa(c, 2); },
                       +[](std::span<const int64_t> c) { return kappa(c, 2, true); },
                       +[](std::span<const int64_t> c) { return matthews(c, 2); }}) {
    EXPECT_NEAR(f(independent), 0, 1e-12);
    EXPECT_NEAR(f(perfect), 1, 1e-12);
  }
  EXPECT_DOUBLE_EQ(balanced_accuracy(std::vector<int64_t>{9, 1, 0, 0}, 2), 0.9);  // a class without samples
}

TEST(Wilson, HoldsTheShareAndNarrowsWithSamples) {
  const Interval few = wilson(9, 10), many = wilson(900, 1000), none = wilson(0, 10);
  EXPECT_LT(few.low, 0.9);
  EXPECT_GT(few.high, 0.9);
  EXPECT_LT(many.high - many.low, few.high - few.low);
  EXPECT_EQ(none.low, 0);
  EXPECT_GT(none.high, 0.2);
  EXPECT_EQ(wilson(0, 0).high, 1);
}

TEST(Wilson, OfAMeanIsThatOfAsManyHits) {
  const Interval hits = wilson(9, 12), mean = wilson_of_mean(0.75, 12), between = wilson_of_mean(0.77, 12);
  EXPECT_EQ(mean.low, hits.low);
  EXPECT_EQ(mean.high, hits.high);
  EXPECT_GT(between.low, hits.low);
  EXPECT_GT(between.high, hits.high);
  EXPECT_EQ(wilson_of_mean(1, 10).low, wilson(10, 10).low);
  EXPECT_EQ(wilson_of_mean(0.5, 0).high, 1);
}

TEST(Paired, EqualModelsDoNotDiffer) {
  const std::vector<bool> hits = {true, false, true, true};
  const PairedCounts same = compare_hits(hits, hits);
  EXPECT_EQ(mcnemar(same).exact_p, 1);
  const Interval interval = paired_bootstrap(same);
  EXPECT_EQ(interval.low, 0);
  EXPECT_EQ(interval.high, 0);
  EXPECT_THROW(compare_hits(hits, {true}), Error);
}

TEST(Paired, TheBootstrapCoversTheDifferenceAsItsFormulaSays) {
  const PairedCounts counts{.samples = 10000, .both = 7000, .only_first = 300, .only_second = 500};
  const Interval interval = paired_bootstrap(counts);
  const double deviation = std::sqrt(800 - 200.0 * 200 / 10000) / 10000;  // the mean difference's
  EXPECT_NEAR(interval.low, 0.02 - 1.96 * deviation, 0.2 * deviation);
  EXPECT_NEAR(interval.high, 0.02 + 1.96 * deviation, 0.2 * deviation);
  EXPECT_LT(mcnemar(counts).exact_p, 1e-10);
}

TEST(ClasswiseCalibration, SamplesInAnyOrderGiveTheSame) {
  RandomStream stream(3, "classwise");
  std::vector<std::array<double, 2>> rows;
  for (int i = 0; i < 50; ++i) {
    const double p = stream.uniform();
    rows.push_back({p, 1 - p});
  }
  ClasswiseCalibration forwards(2, 10), backwards(2, 10);
  for (size_t i = 0; i < rows.size(); ++i) forwards.add(rows[i], static_cast<int64_t>(i % 2));
  for (size_t i = rows.size(); i-- > 0;) backwards.add(rows[i], static_cast<int64_t>(i % 2));
  EXPECT_NEAR(forwards.mean(), backwards.mean(), 1e-12);
}

TEST(Probabilities, OfEachRowSumToOneAndFlattenWithTemperature) {
  const std::vector<float> logits = {1, 2, 3, -1000, 0, 1000};
  const auto cool = probabilities(logits, 3), warm = probabilities(logits, 3, 5);
  EXPECT_NEAR(cool[0] + cool[1] + cool[2], 1, 1e-12);
  EXPECT_EQ(cool[5], 1);
  EXPECT_LT(warm[2], cool[2]);
}

}  // namespace
}  // namespace tessera::eval
