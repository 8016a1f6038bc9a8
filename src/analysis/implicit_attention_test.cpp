#include "analysis/implicit_attention.h"

#include <gtest/gtest.h>

namespace tessera::analysis {
namespace {

TEST(ImplicitAttention, HasRowsOfSumOneAndTellsItsWalk) {
  torch::manual_seed(2);
  const torch::Tensor mixing = torch::randn({2, 3, 5, 5}).tril();
  const torch::Tensor weights = magnitudes_of_sum_one(mixing);
  EXPECT_TRUE(torch::allclose(weights.sum(-1), torch::ones({2, 3, 5})));
  EXPECT_GE(weights.min().item<float>(), 0);
  EXPECT_EQ(magnitudes_of_sum_one(torch::zeros({1, 1, 2, 2})).abs().max().item<float>(), 0);
  EXPECT_EQ(walk_of(mixing), Walk::forwards);
  EXPECT_EQ(walk_of(mixing.flip({2, 3})), Walk::backwards);
  EXPECT_EQ(walk_of(torch::ones({1, 1, 3, 3})), Walk::other);
}

}  // namespace
}  // namespace tessera::analysis
