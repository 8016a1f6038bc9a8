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

}  // namespace
}  // namespace tessera::analysis
