#include "diffusion/gaussian.h"

#include <gtest/gtest.h>

#include "diffusion/guidance.h"

namespace tessera::diffusion {
namespace {

using torch::Tensor;

Tensor normal(std::vector<int64_t> shape, int64_t seed) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  return torch::randn(shape, torch::kFloat64);
}

// A target of one kind of prediction is right for the others.
TEST(Gaussian, TargetsOfAllPredictionsGiveTheCleanImage) {
  const Schedule schedule(make_betas({}));
  const Tensor clean = normal({4, 3, 2, 5}, 1).clamp(-1, 1), noise = normal({4, 3, 2, 5}, 2),
               t = torch::tensor({0, 13, 500, 999}, torch::kInt64);
  for (const Prediction kind : {Prediction::epsilon, Prediction::x0, Prediction::v}) {
    const GaussianDiffusion process(schedule, {.prediction = kind, .variance = Variance::fixed_small});
    const Tensor x = process.noised(clean, t, noise), target = process.target(clean, t, noise);
    EXPECT_TRUE(torch::allclose(process.predicted(target, x, t, false).clean, clean, 1e-8, 1e-8))
        << name_of(kind);
    EXPECT_LT(process.loss(target, clean, noise, t).total.abs().max().item<double>(), 1e-20);
    // The right mean has no divergence, except at the last step, which uses the discrete levels of a pixel.
    EXPECT_LT(process.variational_bits(target, clean, x, t).slice(0, 1).abs().max().item<double>(), 1e-9);
  }
}

// With the right clean image p is q: one step of the chain from x_t has the posterior's mean.
TEST(Gaussian, LearnedVariancesLieBetweenTheTwoFixedOnes) {
  const Schedule schedule(make_betas({}));
  const GaussianDiffusion learned(schedule, {}), small(schedule, {.variance = Variance::fixed_small}),
      large(schedule, {.variance = Variance::fixed_large});
  const Tensor x = normal({3, 2, 4, 4}, 3), e = normal({3, 2, 4, 4}, 4),
               t = torch::tensor({1, 40, 900}, torch::kInt64);
  const auto with = [&](double value) {
    return learned.predicted(torch::cat({e, torch::full_like(e, value)}, 1), x, t, false);
  };
  EXPECT_TRUE(torch::allclose(with(-1).log_variance, small.predicted(e, x, t, false).log_variance));
  EXPECT_TRUE(torch::allclose(with(1).log_variance, large.predicted(e, x, t, false).log_variance));
  EXPECT_TRUE(torch::equal(with(0.3).mean, small.predicted(e, x, t, false).mean));
  EXPECT_ANY_THROW(learned.predicted(e, x, t, false));
}

TEST(Gaussian, TheVariationalTermLeavesTheMeanAlone) {
  const GaussianDiffusion process(Schedule(make_betas({})), {});
  const Tensor clean = normal({2, 2, 4, 4}, 5).clamp(-1, 1), noise = normal({2, 2, 4, 4}, 6),
               t = torch::tensor({0, 300}, torch::kInt64);
  const Tensor output = normal({2, 4, 4, 4}, 7).requires_grad_();
  process.loss(output, clean, noise, t).variational.sum().backward();
  EXPECT_EQ(output.grad().slice(1, 0, 2).abs().max().item<double>(), 0);
  EXPECT_GT(output.grad().slice(1, 2).abs().max().item<double>(), 0);
}

TEST(Guidance, OfOneChangesNothingAndTouchesTheChannelsItIsGiven) {
  const Tensor with = normal({2, 8, 3, 3}, 8), without = normal({2, 8, 3, 3}, 9);
  EXPECT_TRUE(torch::allclose(guided(with, without, {.scale = 1}, 4), with));
  EXPECT_TRUE(torch::allclose(guided(with, without, {.scale = 0}, 4).slice(1, 0, 4), without.slice(1, 0, 4)));
  const Tensor three = guided(with, without, {.scale = 4, .channels = 3}, 4);
  EXPECT_TRUE(torch::equal(three.slice(1, 3), with.slice(1, 3)));
  EXPECT_FALSE(torch::allclose(three.slice(1, 0, 3), with.slice(1, 0, 3)));
  const Tensor rescaled = guided(with, without, {.scale = 4, .rescale = 1}, 8);
  EXPECT_TRUE(torch::allclose(rescaled.flatten(1).std(1), with.flatten(1).std(1)));
  EXPECT_ANY_THROW(Guidance({.scale = -1}).check());
  EXPECT_ANY_THROW(Guidance({.from = 0.6, .to = 0.5}).check());
}

}  // namespace
}  // namespace tessera::diffusion
