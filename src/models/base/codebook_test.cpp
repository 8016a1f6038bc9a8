// Discrete codes against plain loops, and a tokeniser with vectors as codes. Numbers: parity's
// model_vq_codebook.
#include "models/base/codebook.h"

#include <gtest/gtest.h>

#include "models/base/family.h"
#include "models/base/tokeniser.h"

namespace tessera::models::codebook_test {
namespace {

TEST(Codebook, NearestIsTheFirstOfEquals) {
  torch::manual_seed(1);
  const torch::Tensor z = torch::randn({3, 5, 4}), codes = torch::randn({9, 4});
  const torch::Tensor index = nearest_codes(z, codes);
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 5; ++j) {
      const double chosen = (codes[index[i][j].item<int64_t>()] - z[i][j]).square().sum().item<double>();
      for (int64_t k = 0; k < 9; ++k)
        EXPECT_LE(chosen, (codes[k] - z[i][j]).square().sum().item<double>() + 1e-5);
    }
  const torch::Tensor twice = torch::cat({codes, codes});
  EXPECT_TRUE(torch::equal(nearest_codes(z, twice), index));
}

TEST(Codebook, MovesToTheMeanOfItsVectors) {
  const torch::Tensor z = torch::tensor({{0.0, 1.0}, {2.0, 1.0}, {8.0, 8.0}}, torch::kFloat64);
  torch::Tensor counts = torch::tensor({1.0, 1.0}, torch::kFloat64),
                sums = torch::tensor({{0.0, 0.0}, {9.0, 9.0}}, torch::kFloat64);
  torch::Tensor codes = sums.clone();
  for (int i = 0; i < 200; ++i) codes = move_codebook(counts, sums, z, nearest_codes(z, codes), 0.9, 0);
  EXPECT_TRUE(torch::allclose(codes, torch::tensor({{1.0, 1.0}, {8.0, 8.0}}, torch::kFloat64), 1e-6, 1e-6));
}

TEST(Codebook, HardSamplesHaveTheSoftGradient) {
  torch::manual_seed(2);
  const torch::Tensor gumbel = torch::randn({4, 6}), weight = torch::randn({4, 6});
  torch::Tensor gradients[2];
  for (const bool hard : {false, true}) {
    const torch::Tensor scores = torch::linspace(-1, 1, 24).view({4, 6}).clone().requires_grad_();
    const torch::Tensor drawn = gumbel_weights(scores, gumbel, 0.5, hard);
    EXPECT_TRUE(torch::allclose(drawn.sum(-1), torch::ones({4})));
    if (hard) {
      EXPECT_EQ((drawn > 0.5).sum().item<int64_t>(), 4);
    }
    (drawn * weight).sum().backward();
    gradients[hard] = scores.grad();
  }
  EXPECT_TRUE(torch::allclose(gradients[0], gradients[1]));
}

TEST(Tokeniser, GivesATokenForEveryCell) {
  for (const int64_t codebook : {0, 12}) {
    const auto spec = resolve_model("dalle", table({{"image_size", 16},
                                                    {"dims", Value::Array{8, 16}},
                                                    {"depths", Value::Array{1, 2}},
                                                    {"outputs", 6},
                                                    {"codebook", codebook},
                                                    {"classes", 0}}));
    const auto model = build_backbone(spec, 1);
    auto& tokeniser = dynamic_cast<Tokeniser&>(*model);
    EXPECT_EQ(tokeniser.codes(), codebook > 0 ? 12 : 6);
    EXPECT_EQ(tokeniser.cell(), 2);
    const torch::NoGradGuard no_grad;
    const torch::Tensor tokens = tokeniser.tokens(torch::rand({3, 3, 16, 12}));
    EXPECT_EQ(tokens.sizes(), (std::vector<int64_t>{3, 8, 6}));
    EXPECT_LT(tokens.max().item<int64_t>(), tokeniser.codes());
    if (codebook > 0) {
      EXPECT_FALSE(tokeniser.code_vectors().requires_grad());
    }
  }
}

}  // namespace
}  // namespace tessera::models::codebook_test
