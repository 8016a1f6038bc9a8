// GLIP: fusion, scores of classes, the assignment of cells to objects, and that a head learns two objects.
#include "models/detection/glip_head.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"

namespace tessera::models {
namespace {

using torch::Tensor;

TEST(GlipFusion, PaddingOfTheTextChangesNoCell) {
  torch::manual_seed(1);
  GlipFusion fusion(8, 6, 12, 3);
  fusion.initialise(1);
  fusion.to(torch::kFloat64);
  for (Tensor& parameter : fusion.parameters()) {
    const torch::NoGradGuard no_grad;
    parameter.normal_();
  }
  const Tensor cells = torch::randn({2, 5, 8}, torch::kFloat64),
               tokens = torch::randn({2, 4, 6}, torch::kFloat64);
  Tensor mask = torch::ones({2, 4}, torch::kBool);
  mask.select(1, 3).fill_(false);
  Tensor other = tokens.clone();
  other.select(1, 3).fill_(3);
  EXPECT_TRUE(
      torch::allclose(fusion.forward(cells, tokens, mask).first, fusion.forward(cells, other, mask).first));
  EXPECT_FALSE(
      torch::allclose(fusion.forward(cells, tokens, {}).first, fusion.forward(cells, other, {}).first));
  EXPECT_TRUE(torch::allclose(fusion.forward(cells, tokens, mask).first,
                              fusion.forward(cells, tokens.slice(1, 0, 3), {}).first));
}

TEST(TokenFocalLoss, IsCrossEntropyWithoutFocusAndWeights) {
  torch::manual_seed(2);
  const Tensor scores = torch::randn({2, 3, 4}, torch::kFloat64),
               targets = torch::randint(0, 2, {2, 3, 4}).to(torch::kFloat64);
  const double expected =
      at::binary_cross_entropy_with_logits(scores, targets, {}, {}, at::Reduction::Sum).item<double>();
  EXPECT_NEAR(token_focal_loss(TokenLoss::binary, scores, targets, {}, -1, 0).item<double>(), expected, 1e-9);
  EXPECT_NEAR(2 * token_focal_loss(TokenLoss::binary_v2, scores, targets, {}, 0.5, 0).item<double>(),
              expected,
              1e-6);  // 1e-8 inside its logarithm
  Tensor mask = torch::ones({2, 4});
  mask.select(1, 1).fill_(0);
  const Tensor kept = torch::tensor({0, 2, 3});
  EXPECT_NEAR(token_focal_loss(TokenLoss::binary, scores, targets, mask, 0.25, 2).item<double>(),
              token_focal_loss(TokenLoss::binary, scores.index_select(2, kept), targets.index_select(2, kept),
                               {}, 0.25, 2)
                  .item<double>(),
              1e-9);
  EXPECT_THROW(token_focal_loss(TokenLoss::binary, scores, targets.slice(2, 0, 3), {}, 0.25, 2), Error);
}

TEST(ClassProbabilities, VoteOverTheTokensOfAName) {
  const Tensor scores = torch::tensor({0.5, 0.75, 0.25}, torch::kFloat64);
  const TokenSpans classes = {{0}, {1, 2}};
  EXPECT_TRUE(torch::allclose(class_probabilities(scores, classes, TokenVote::mean),
                              torch::tensor({0.5, 0.5}, torch::kFloat64)));
  EXPECT_TRUE(torch::allclose(class_probabilities(scores, classes, TokenVote::most),
                              torch::tensor({0.5, 0.75}, torch::kFloat64)));
}

TEST(AtssMatches, CellsOfAnObjectAreWithinIt) {
  std::vector<Tensor> levels;
  for (const int64_t stride : {8, 16}) {
    const AnchorOptions options{.sizes = {{4.0 * static_cast<double>(stride)}}, .ratios = {1}, .offset = 0.5};
    levels.push_back(options.anchors(0, {64 / stride, 64 / stride}, {stride, stride}, torch::kFloat64));
  }
  const Tensor truths =
      torch::tensor({4.0, 4.0, 36.0, 36.0, 40.0, 8.0, 60.0, 60.0}, torch::kFloat64).view({2, 4});
  const std::vector<int64_t> owner = atss_matches(levels, truths, 9);
  const Tensor anchors = torch::cat(levels);
  ASSERT_EQ(std::ssize(owner), anchors.size(0));
  std::vector<int64_t> count(2, 0);
  for (size_t i = 0; i < owner.size(); ++i) {
    if (owner[i] < 0) continue;
    ++count[static_cast<size_t>(owner[i])];
    const Tensor anchor = anchors[static_cast<int64_t>(i)], box = truths[owner[i]];
    const Tensor centre = (anchor.slice(0, 0, 2) + anchor.slice(0, 2, 4)) / 2;
    EXPECT_TRUE((centre > box.slice(0, 0, 2)).all().item<bool>());
    EXPECT_TRUE((centre < box.slice(0, 2, 4)).all().item<bool>());
  }
  for (const int64_t cells : count) {
    EXPECT_GE(cells, 1);
    EXPECT_LE(cells, 18);
  }
  const std::vector<int64_t> none = atss_matches(levels, torch::zeros({0, 4}, torch::kFloat64), 9);
  EXPECT_EQ(std::count(none.begin(), none.end(), Matches::kBackground), anchors.size(0));
}

}  // namespace
}  // namespace tessera::models
