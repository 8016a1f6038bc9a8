#include "eval/receptive_field.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::eval {
namespace {

TEST(ReceptiveField, EvenContributionNeedsTheShareOfTheArea) {
  const std::vector<double> even(40 * 40, 1);
  const ReceptiveArea half = receptive_area(even, 40, 40, 0.5);
  EXPECT_EQ(half.side, 29);  // 28 x 28 cover 49 %
  EXPECT_DOUBLE_EQ(half.share, half.area);
}

TEST(ReceptiveField, APointInTheCentreNeedsOnePixel) {
  std::vector<double> point(9 * 9);
  point[4 * 9 + 4] = 3;
  EXPECT_EQ(receptive_area(point, 9, 9, 0.99).side, 1);
}

TEST(ReceptiveField, NegativeGradientsAreNoContribution) {
  const std::vector<float> gradients = {-1, 2, -3, 4, 1, -1, 1, 1};  // two channels of 2 x 2
  EXPECT_EQ(contribution(gradients, 2, 2), (std::vector<double>{1, 2, 1, 5}));
  EXPECT_THROW(receptive_area(std::vector<double>(4), 2, 2, 0.5), Error);
}

}  // namespace
}  // namespace tessera::eval
