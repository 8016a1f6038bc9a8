#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/error.h"
#include "core/random.h"
#include "eval/ranking.h"

namespace tessera::eval {
namespace {

using Floats = std::vector<float>;

TEST(AveragePrecision, HandWorkedCases) {
  EXPECT_DOUBLE_EQ(average_precision(Floats{4, 3, 2, 1}, Floats{1, 1, 0, 0}), 1);
  EXPECT_DOUBLE_EQ(average_precision(Floats{4, 3, 2, 1}, Floats{0, 1, 0, 1}), (1.0 / 2 + 2.0 / 4) / 2);
  EXPECT_DOUBLE_EQ(average_precision(Floats{1, 2, 3, 4}, Floats{1, 0, 0, 0}), 0.25);
  EXPECT_DOUBLE_EQ(average_precision(Floats{1, 1, 1, 1}, Floats{0, 1, 0, 0}), 0.25);
  EXPECT_EQ(average_precision(Floats{1, 2}, Floats{0, 0}), -1);
  EXPECT_EQ(average_precision({}, {}), -1);
}

TEST(AveragePrecision, OrderOfSamplesDoesNotMatterEvenWithTies) {
  RandomStream stream(1, "multilabel_test");
  Floats scores, targets;
  for (int i = 0; i < 60; ++i) {
    scores.push_back(static_cast<float>(stream.below(8)));
    targets.push_back(stream.chance(0.3) ? 1 : 0);
  }
  scores[7] = scores[40] = NAN;
  const double want = average_precision(scores, targets);
  for (int trial = 0; trial < 5; ++trial) {
    Floats s, t;
    for (const int64_t i : stream.permutation(60))
      s.push_back(scores[static_cast<size_t>(i)]), t.push_back(targets[static_cast<size_t>(i)]);
    EXPECT_DOUBLE_EQ(average_precision(s, t), want);
  }
}

TEST(BestThreshold, IsTheOneOfAllThresholds) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Floats scores, targets;
    for (int i = 0; i < 12; ++i) {
      scores.push_back(static_cast<float>(random() % 6));  // with ties
      targets.push_back(random() % 3 == 0 ? 1.f : 0.f);
    }
    const auto wanted = static_cast<double>(std::count(targets.begin(), targets.end(), 1.f));
    BestThreshold want;
    for (int t = 5; t >= 0 && wanted > 0; --t) {
      double hit = 0, said = 0;
      for (size_t i = 0; i < scores.size(); ++i)
        if (scores[i] >= static_cast<float>(t)) said += 1, hit += targets[i];
      if (std::count(scores.begin(), scores.end(), static_cast<float>(t)) == 0) continue;
      if (const double f1 = 2 * hit / (said + wanted); f1 > want.f1)
        want = {static_cast<double>(t), f1, hit / said, hit / wanted};
    }
    const BestThreshold found = best_threshold(scores, targets);
    EXPECT_DOUBLE_EQ(found.threshold, want.threshold);
    EXPECT_DOUBLE_EQ(found.f1, want.f1);
    EXPECT_DOUBLE_EQ(found.precision, want.precision);
    EXPECT_DOUBLE_EQ(found.recall, want.recall);
  }
  EXPECT_EQ(best_threshold(Floats{1, 2}, Floats{0, 0}).f1, -1);
}

TEST(MultiLabel, ScoresFollowTheirDefinitions) {
  //               class 0   1   2 (no positive)
  const Floats scores = {2,  -1, -1,  //
                         1,  3,  -1,  //
                         -1, 2,  1};
  const Floats targets = {1, 0, 0,  //
                          0, 1, 0,  //
                          1, 1, 0};
  std::vector<LabelScores> by_class;
  for (size_t c = 0; c < 3; ++c)
    by_class.push_back(label_scores(Floats{scores[c], scores[3 + c], scores[6 + c]},
                                    Floats{targets[c], targets[3 + c], targets[6 + c]}));
  const auto result = multilabel_scores(by_class, 1, 3);
  EXPECT_DOUBLE_EQ(result.average_precision[0], (1 + 2.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(result.average_precision[1], 1);
  EXPECT_DOUBLE_EQ(result.average_precision[2], -1);
  EXPECT_DOUBLE_EQ(result.map, (5.0 / 6 + 1) / 2);
  EXPECT_DOUBLE_EQ(result.micro_f1, 2.0 * 3 / (5 + 4));
  EXPECT_DOUBLE_EQ(result.macro_f1, (0.5 + 1) / 2);
  EXPECT_DOUBLE_EQ(result.exact_match, 1.0 / 3);
}

TEST(MultiLabel, WrongSizesAreRefusedAndNothingIsNoScore) {
  EXPECT_THROW(label_scores(Floats(6), Floats(5)), Error);
  EXPECT_EQ(multilabel_scores({}, 0, 0).map, 0);
}

}  // namespace

namespace {

TEST(Retrieval, TheBestOfSeveralCounts) {
  const std::vector<float> scores = {0.1f, 0.9f, 0.5f, 0.7f};
  const auto rank = [&](const std::vector<int64_t>& relevant) { return rank_of_first(scores, relevant); };
  EXPECT_EQ(rank({0, 2}), 2);
  EXPECT_EQ(rank({1}), 0);
  EXPECT_EQ(rank({3}), 1);
  EXPECT_EQ(rank({}), -1);
}

TEST(Retrieval, EqualScoresAreNoSuccess) {
  const std::vector<float> flat(5, 1.0f);
  EXPECT_EQ(rank_of_first(flat, std::vector<int64_t>{0}), 4);
  std::vector<float> broken = flat;
  broken[2] = NAN;
  EXPECT_EQ(rank_of_first(broken, std::vector<int64_t>{2}), 4);
}

TEST(Retrieval, RecallGrowsWithK) {
  RetrievalMeter meter;
  for (const int64_t rank : {0, 3, 9, -1}) meter.add(rank);
  EXPECT_DOUBLE_EQ(meter.recall(1), 0.25);
  EXPECT_DOUBLE_EQ(meter.recall(5), 0.5);
  EXPECT_DOUBLE_EQ(meter.recall(10), 0.75);
  EXPECT_EQ(meter.median_rank(), 4);
  EXPECT_TRUE(std::isnan(RetrievalMeter().recall(1)));
}

}  // namespace

}  // namespace tessera::eval
