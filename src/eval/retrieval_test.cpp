#include "eval/retrieval.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::eval {
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
