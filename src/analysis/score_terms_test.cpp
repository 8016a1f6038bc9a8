#include "analysis/score_terms.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "nn/rope.h"

namespace tessera::analysis {
namespace {

using torch::Tensor;

constexpr int64_t kImages = 6, kWindows = 2, kHeads = 2, kTokens = 9, kWidth = 8;

Tensor random(std::vector<int64_t> shape) { return torch::randn(shape, torch::kFloat64); }

ScoreOperand operand(const Tensor& values) { return {values, position_share(values.mean(0))}; }

Tensor seen_all(const Tensor& like) { return torch::ones_like(like, torch::kBool); }

TEST(ScoreTerms, AddUpToTheScoresWithAndWithoutRotation) {
  torch::manual_seed(1);
  const Tensor q = random({kImages, kWindows, kHeads, kTokens, kWidth}), k = random(q.sizes().vec());
  const auto places = nn::grid_positions(0, kTokens, 3);
  const nn::Rotation rotation = nn::rotation_2d(places.x, places.y, kWidth);
  for (const bool rotate : {false, true}) {
    ScoreOperand queries = operand(q), keys = operand(k);
    Tensor turned_q = q, turned_k = k;
    if (rotate) {
      for (ScoreOperand* one : {&queries, &keys})
        one->cos = rotation.angles.cos(), one->sin = rotation.angles.sin();
      turned_q = nn::rotate(q.flatten(0, 1), rotation).view_as(q);
      turned_k = nn::rotate(k.flatten(0, 1), rotation).view_as(k);
    }
    const ScoreTerms terms = score_terms(queries, keys);
    const Tensor scores = torch::matmul(turned_q, turned_k.transpose(-2, -1)) / std::sqrt(double{kWidth});
    EXPECT_TRUE(torch::allclose(terms.content + terms.position + terms.cross, scores, 0, 1e-12));
  }
}

// q = content of the image + position of the place, as in eq. 5: each term comes from its own part.
TEST(ScoreTerms, FindPositionsThatWereAdded) {
  torch::manual_seed(2);
  const Tensor content = random({kImages, 1, kHeads, 1, kWidth});
  Tensor position = random({kWindows, kHeads, kTokens, kWidth});
  position = position - position.mean(torch::IntArrayRef({0, 2}), true);
  const ScoreOperand both = operand(content + position);
  EXPECT_TRUE(torch::allclose(both.position, position, 0, 1e-12));
  const ScoreTerms terms = score_terms(both, both);
  const Tensor expected = torch::matmul(position, position.transpose(-2, -1)) / std::sqrt(double{kWidth});
  EXPECT_TRUE(torch::allclose(terms.position[0], expected, 0, 1e-12));
  // The content is constant within an image: no key differs by its content.
  EXPECT_LT(term_deviation(terms.content, seen_all(terms.content)).max().item<double>(), 1e-12);
  EXPECT_GT(term_deviation(terms.cross, seen_all(terms.cross)).min().item<double>(), 0.1);
}

// Eq. 6: with nothing added, the whole score is content times a rotation, a function of the offset only.
TEST(ScoreTerms, RotationAloneAddsNoTermAndDependsOnTheOffset) {
  torch::manual_seed(3);
  const Tensor content = random({kImages, 1, kHeads, 1, kWidth}).expand({-1, 1, -1, kTokens, -1});
  const auto places = nn::grid_positions(0, kTokens, 3);
  const nn::Rotation rotation = nn::rotation_2d(places.x, places.y, kWidth);
  ScoreOperand one = operand(content);
  one.cos = rotation.angles.cos(), one.sin = rotation.angles.sin();
  const ScoreTerms terms = score_terms(one, one);
  EXPECT_LT(terms.position.abs().max().item<double>(), 1e-12);
  EXPECT_LT(terms.cross.abs().max().item<double>(), 1e-12);
  const auto at = [&](int64_t i, int64_t j) { return terms.content[0][0][0][i][j].item<double>(); };
  EXPECT_NEAR(at(0, 1), at(4, 5), 1e-12);
  EXPECT_NEAR(at(0, 4), at(4, 8), 1e-12);
  EXPECT_GT(std::abs(at(0, 0) - at(0, 1)), 1e-3);
}

TEST(ScoreTerms, KeysThatAreNotSeenDoNotCount) {
  Tensor term = torch::zeros({1, 1, 1, 2, 4}, torch::kFloat64);
  term.select(-1, 0).fill_(1), term.select(-1, 3).fill_(1000);
  Tensor seen = seen_all(term);
  seen.select(-1, 3).fill_(false);
  EXPECT_NEAR(term_deviation(term, seen).item<double>(), std::sqrt(2.0 / 9), 1e-12);  // over 1, 0, 0
}

TEST(ScoreTerms, ByDistanceIsTheMeanOfThePairs) {
  const TokenLayout layout{2, 3, 1, 0};  // a class token first
  Tensor term = torch::full({1, 1, 1, 7, 7}, 100.0, torch::kFloat64);
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 6; ++j)
      term[0][0][0][1 + i][1 + j] = std::round(std::hypot(i / 3 - j / 3, i % 3 - j % 3)) * 2;
  const std::vector<double> means = term_by_distance(term, seen_all(term), layout);
  EXPECT_EQ(means, (std::vector<double>{0, 2, 4}));
  Tensor near = seen_all(term);
  near.fill_(false).diagonal(0, -2, -1).fill_(true);
  EXPECT_TRUE(std::isnan(term_by_distance(term, near, layout)[2]));
  EXPECT_THROW(term_by_distance(term, near, {4, 4, 1, 0}), Error);
}

}  // namespace
}  // namespace tessera::analysis
