#include "tasks/base/representation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace tessera::tasks {
namespace {

using torch::Tensor;

// Closed-form leave-one-out equals regressions that each leave out one sample.
TEST(Ridge, LeaveOneOutIsThatOfLeavingOneOut) {
  torch::manual_seed(1);
  const int64_t n = 12, classes = 3;
  const Tensor x = torch::randn({n, 4}, torch::kFloat64), labels = torch::arange(n) % classes;
  const double lambda = 0.3;
  const Ridge ridge = fit_ridge(x, labels, classes, {lambda}, false);
  const Tensor y = torch::one_hot(labels, classes).to(torch::kFloat64);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<int64_t> others;
    for (int64_t j = 0; j < n; ++j)
      if (j != i) others.push_back(j);
    const Tensor rows = torch::tensor(others);
    // Ridge with an unpenalised intercept, solved as one system.
    const Tensor a = torch::cat({x.index_select(0, rows), torch::ones({n - 1, 1}, torch::kFloat64)}, 1);
    Tensor shrink = torch::eye(5, torch::kFloat64) * lambda * static_cast<double>(n);
    shrink[4][4] = 0;
    const Tensor w = torch::linalg_solve(a.t().mm(a) + shrink, a.t().mm(y.index_select(0, rows)));
    const Tensor row = torch::cat({x[i], torch::ones({1}, torch::kFloat64)}).unsqueeze(0);
    sum += (y[i] - row.mm(w)[0]).square().sum().item<double>();
  }
  EXPECT_NEAR(ridge.loo, sum / static_cast<double>(n * classes), 1e-9);
}

TEST(Ridge, TheBestLambdaIsThatOfTheSmallestResidual) {
  torch::manual_seed(2);
  const Tensor x = torch::randn({40, 30}, torch::kFloat64), labels = torch::randint(0, 2, {40});
  const std::vector<double> lambdas = {1e-6, 1e-3, 1, 1e3};
  const Ridge best = fit_ridge(x, labels, 2, lambdas, true);
  for (const double lambda : lambdas) EXPECT_LE(best.loo, fit_ridge(x, labels, 2, {lambda}, true).loo);
}

TEST(Neighbours, VoteByNumberOrBySimilarity) {
  const Tensor train = torch::tensor({{1.0, 0.0}, {0.9, 0.5}, {0.8, 0.6}});
  const Tensor labels = torch::tensor({int64_t{1}, int64_t{0}, int64_t{0}});
  const Tensor test = torch::tensor({{1.0, 0.02}});
  EXPECT_EQ(neighbour_classes(train, labels, test, {.neighbours = 1}).item<int64_t>(), 1);
  EXPECT_EQ(neighbour_classes(train, labels, test, {.neighbours = 3}).item<int64_t>(), 0);
  EXPECT_EQ(neighbour_classes(train, labels, test, {.neighbours = 3, .temperature = 0.01}).item<int64_t>(),
            1);
  // One vote each: the tie goes to the lower class index.
  EXPECT_EQ(neighbour_classes(train, labels, test, {.neighbours = 2}).item<int64_t>(), 0);
  try {
    neighbour_classes(train, labels, test, {.neighbours = 4});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "4 neighbours of 3 training images");
    EXPECT_EQ(error.kind, ErrorKind::usage);
  }
}

TEST(Neighbours, AreLeftOutOfTheirOwnVote) {
  const Tensor features = torch::eye(4);  // all others are equally far
  EXPECT_EQ(neighbour_accuracy(features, torch::arange(4), 3), 0);
}

TEST(Rank, CountsTheDirectionsInUse) {
  torch::manual_seed(3);
  const Tensor even = torch::eye(8, torch::kFloat64).repeat({5, 1});
  EXPECT_NEAR(rankme(even), 8, 1e-3);
  EXPECT_NEAR(rankme(torch::ones({20, 8})), 1, 1e-3);
}

// Permuted, scaled or shifted units are the same representation; a different one is not.
TEST(Alignment, OfPermutedUnitsIsOne) {
  torch::manual_seed(7);
  const torch::Tensor x = torch::randn({40, 12}, torch::kFloat64);
  const torch::Tensor permuted = x.index_select(1, torch::randperm(12)) * 3 + 1;
  EXPECT_NEAR(linear_cka(x, permuted), 1, 1e-12);
  EXPECT_NEAR(debiased_cka(x, permuted), 1, 1e-12);
  EXPECT_LT(linear_cka(x, torch::randn_like(x)), 0.6);
}

TEST(Deviation, IsOneOnTheSphereAndZeroInACollapse) {
  torch::manual_seed(4);
  EXPECT_NEAR(feature_deviation(torch::randn({4000, 32})), 1, 0.02);
  EXPECT_NEAR(feature_deviation(torch::ones({20, 8})), 0, 1e-6);
}

}  // namespace
}  // namespace tessera::tasks
