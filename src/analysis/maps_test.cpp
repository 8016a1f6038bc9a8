#include "analysis/maps.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::analysis {
namespace {

using torch::Tensor;

TEST(IntegratedGradients, OfALinearScoreAreExact) {
  torch::manual_seed(1);
  const Tensor weight = torch::randn({3, 6, 5}, torch::kFloat64),
               images = torch::randn({2, 3, 6, 5}, torch::kFloat64);
  const auto score = [&](const Tensor& x) { return (x * weight).flatten(1).sum(1) + 3; };
  const Tensor baseline = torch::randn({1, 3, 6, 5}, torch::kFloat64);
  const Tensor found = integrated_gradients(score, images, baseline, 1);
  EXPECT_TRUE(torch::allclose(found, (images - baseline) * weight, 1e-12, 1e-12));
  EXPECT_TRUE(torch::allclose(found.flatten(1).sum(1), score(images) - score(baseline), 1e-9, 1e-9));
}

TEST(IntegratedGradients, SumToTheDifferenceOfTheScores) {
  const Tensor images = torch::rand({2, 3, 4, 4}, torch::kFloat64);
  const auto score = [](const Tensor& x) { return (x * x * x).flatten(1).sum(1); };
  const Tensor found = integrated_gradients(score, images, torch::zeros_like(images), 200);
  EXPECT_TRUE(torch::allclose(found.flatten(1).sum(1), score(images), 1e-4, 0));
}

TEST(Faithfulness, TellsAGoodMapFromItsOpposite) {
  Tensor images = torch::zeros({1, 3, 32, 32});
  images.slice(2, 8, 16).slice(3, 16, 24) = 1;  // the relevant part
  const auto score = [](const Tensor& x) { return x.slice(2, 8, 16).slice(3, 16, 24).mean({1, 2, 3}); };
  Tensor map = torch::rand({1, 4, 4});
  map[0][1][2] = 2;
  const Faithfulness good = faithfulness(score, images, map, 16), bad = faithfulness(score, images, -map, 16);
  EXPECT_LT(good.deletion.item<double>(), bad.deletion.item<double>());
  EXPECT_GT(good.insertion.item<double>(), bad.insertion.item<double>());
}

TEST(Enlarged, HasTheRangeOfOneWhateverTheMap) {
  const Tensor map = enlarged(torch::randn({3, 4, 4}) * 7 + 2, 16, 20);
  EXPECT_EQ(map.sizes(), (std::vector<int64_t>{3, 16, 20}));
  EXPECT_EQ(map.min().item<float>(), 0);
  EXPECT_EQ(map.max().item<float>(), 1);
  EXPECT_EQ(enlarged(torch::ones({1, 2, 2}), 4, 4).abs().max().item<float>(), 0);  // a constant map is all 0
  EXPECT_THROW(overlay(Image(4, 4, 3), torch::zeros({3, 3})), Error);
}

}  // namespace
}  // namespace tessera::analysis
