#include <gtest/gtest.h>

#include "analysis/attention.h"
#include "core/error.h"

namespace tessera::analysis {
namespace {

using torch::Tensor;

TEST(AttentionRank, OfEqualRowsIsOneAndOfTheIdentityTheShare) {
  EXPECT_EQ(attention_rank(torch::full({2, 10, 10}, 0.1)).rank.max().item<int64_t>(), 1);
  EXPECT_EQ(attention_rank(torch::eye(10), 0.8).rank.item<int64_t>(), 8);
  EXPECT_EQ(attention_rank(torch::eye(10), 1.0).rank.item<int64_t>(), 10);
}

TEST(AttentionDistance, OfALookAtOneselfIsZeroAndAtANeighbourThePatch) {
  const TokenLayout layout{3, 3, 1, 0};
  EXPECT_DOUBLE_EQ(attention_distance(torch::eye(10).view({1, 10, 10}), layout, 16)[0].item<double>(), 0);
  Tensor right = torch::zeros({1, 10, 10});
  for (int64_t i = 0; i < 9; ++i) right[0][1 + i][1 + (i % 3 == 2 ? i - 1 : i + 1)] = 1;
  EXPECT_DOUBLE_EQ(attention_distance(right, layout, 16)[0].item<double>(), 16);
  EXPECT_THROW(attention_distance(right, {4, 4, 1, 0}, 16), Error);
}

TEST(AttentionEntropy, IsThatOfEvenWeightsAtMostAndWorksWithMaskedOnes) {
  const Tensor causal = torch::ones({5, 5}).tril();
  const Tensor entropy = attention_entropy(causal / causal.sum(-1, true));
  for (int64_t i = 0; i < 5; ++i) EXPECT_NEAR(entropy[i].item<double>(), std::log(i + 1.0), 1e-6);
}

TEST(Rollout, RowsSumToOneAndEvenLayersMixAll) {
  const std::vector<Tensor> layers(12, torch::full({1, 2, 6, 6}, 1.0 / 6));
  const Tensor mixed = rollout(layers);
  EXPECT_TRUE(torch::allclose(mixed.sum(-1), torch::ones({1, 6}), 1e-5, 1e-6));
  EXPECT_LT((mixed - 1.0 / 6).abs().max().item<double>(), 1e-3);
  EXPECT_THROW(rollout({}), Error);
}

TEST(Relevance, WithoutPositiveInfluenceATokenIsRelevantForItselfAlone) {
  const std::vector<Tensor> layers(3, torch::full({1, 2, 4, 4}, 0.25)),
      against(3, torch::full({1, 2, 4, 4}, -1.0));
  EXPECT_TRUE(torch::equal(relevance(layers, against)[0], torch::eye(4)));
}

}  // namespace

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
