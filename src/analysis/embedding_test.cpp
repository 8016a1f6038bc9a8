#include "analysis/embedding.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::analysis {
namespace {

TEST(PrincipalComponents, FindTheDirectionsThatWereMade) {
  torch::manual_seed(1);
  const torch::Tensor places =
      torch::randn({200, 2}, torch::kFloat64) * torch::tensor({10.0, 1.0}, torch::kFloat64);
  const torch::Tensor x = torch::cat({places, torch::zeros({200, 3}, torch::kFloat64)}, 1) + 5;
  const PrincipalComponents found = principal_components(x, 4);
  EXPECT_GT(found.components[0][0].item<double>(), 0.99);
  EXPECT_NEAR(found.variance[0], 100, 25);
  EXPECT_NEAR(found.variance_share[0] + found.variance_share[1], 1, 1e-9);
  EXPECT_TRUE(torch::allclose(found.scores.mean(0), torch::zeros(4, torch::kFloat64), 0, 1e-9));
  EXPECT_THROW(principal_components(x.slice(0, 0, 1), 1), Error);
}

TEST(TsnePlaces, KeepGroupsApartAndDependOnTheSeedAlone) {
  torch::manual_seed(2);
  const torch::Tensor near = torch::randn({30, 8}), features = torch::cat({near, near + 40});
  double divergence = -1;
  const torch::Tensor places = tsne_places(features, 10, 300, 3, &divergence);
  ASSERT_EQ(places.sizes(), (std::vector<int64_t>{60, 2}));
  EXPECT_GE(divergence, 0);
  EXPECT_TRUE(torch::equal(places, tsne_places(features, 10, 300, 3)));
  const torch::Tensor first = places.slice(0, 0, 30), second = places.slice(0, 30);
  const double apart = (first.mean(0) - second.mean(0)).norm().item<double>();
  EXPECT_GT(apart, 2 * first.std(0).norm().item<double>());
}

}  // namespace
}  // namespace tessera::analysis
