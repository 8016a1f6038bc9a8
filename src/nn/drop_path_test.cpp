// Stochastic depth: draws belong to samples, and factors give the same sums as the kept samples.
#include "nn/drop_path.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/recording.h"

namespace tessera::nn {
namespace {

using torch::Tensor;

TEST(DropPath, DrawsBelongToSamplesNotToBatches) {
  const Context whole{.seed = 1, .step = 5};
  const auto kept = kept_samples(1000, 0.3, 2, whole);
  EXPECT_NEAR(static_cast<double>(kept.size()), 700, 60);
  std::vector<int64_t> pieces;
  for (int64_t first = 0; first < 1000; first += 250)
    for (const int64_t i : kept_samples(250, 0.3, 2, {.seed = 1, .step = 5, .first_sample = first}))
      pieces.push_back(first + i);
  EXPECT_EQ(pieces, kept);
  EXPECT_NE(kept_samples(1000, 0.3, 3, whole), kept);
  EXPECT_NE(kept_samples(1000, 0.3, 2, {.seed = 1, .step = 6}), kept);
  EXPECT_NE(kept_samples(1000, 0.3, 2, {.seed = 2, .step = 5}), kept);
}

TEST(DropPath, ComputesKeptSamplesOnlyAndScalesThem) {
  const Context context{.seed = 1, .step = 1};
  const Tensor x = torch::randn({64, 3, 4}).requires_grad_();
  const auto kept = kept_samples(64, 0.5, 0, context);
  int64_t computed = 0;
  const Tensor y = residual(x, 0.5, true, 0, context, [&](const Tensor& some) {
    computed = some.size(0);
    return some * 3;
  });
  EXPECT_EQ(computed, static_cast<int64_t>(kept.size()));
  Tensor want = x.detach().clone();
  for (const int64_t i : kept) want[i] += 2 * 3 * x.detach()[i];
  EXPECT_TRUE(torch::allclose(y, want));
  y.sum().backward();
  EXPECT_TRUE(torch::allclose(x.grad(), want / x.detach()));
}

// All samples are computed, the dropped ones count 0 times even if their branch is not finite.
TEST(DropPath, FactorsGiveTheSameSums) {
  const Context context{.seed = 1, .step = 1}, later{.seed = 1, .step = 2}, view{.seed = 1, .step = 4};
  const Tensor x = torch::randn({64, 3, 4});
  const auto sum_of = [&](const Context& of, const Tensor& added = torch::Tensor()) {
    return residual(x, 0.5, true, 3, of, [&](const Tensor& some) {
      EXPECT_EQ(some.size(0) == 64, added.defined());
      return added.defined() ? some * 3 + added : some * 3;
    });
  };
  const Tensor want = sum_of(context), want_later = sum_of(later), want_view = sum_of(view);
  const Tensor nothing = torch::zeros_like(x);
  Tensor infinite = torch::zeros_like(x);
  infinite.masked_fill_((path_factors(x.device(), 64, 0.5, 3, later) == 0).view({-1, 1, 1}), INFINITY);
  std::vector<DropPathFactors::Branch> branches;
  {
    const DropPathFactors first(branches, torch::zeros({0}), context);
    EXPECT_TRUE(torch::allclose(sum_of(context, nothing), want));
    EXPECT_EQ(DropPathFactors::current(), &first);
    EXPECT_TRUE(torch::equal(sum_of(view), want_view));  // another context
  }
  EXPECT_EQ(DropPathFactors::current(), nullptr);
  EXPECT_EQ(branches, (std::vector<DropPathFactors::Branch>{{3, 64, 0.5}}));
  const Tensor table = DropPathFactors::drawn(branches, later);
  const DropPathFactors known(branches, table, later);
  const Recording recording;  // a known branch makes no draws, another one does
  EXPECT_TRUE(torch::allclose(sum_of(later, infinite), want_later));
  EXPECT_ANY_THROW(sum_of(later, nothing));
}

TEST(DropPath, DoesNothingInEvaluation) {
  const Tensor x = torch::randn({8, 2});
  const auto branch = [](const Tensor& some) { return some.square(); };
  EXPECT_TRUE(torch::equal(residual(x, 0.9, false, 0, {}, branch), x + x.square()));
  EXPECT_TRUE(torch::equal(residual(x, 0.0, true, 0, {}, branch), x + x.square()));
}

TEST(DropPath, RatesGrowOrStay) {
  EXPECT_EQ(drop_path_rates(0.3, 4, true), (std::vector<double>{0, 0.3 / 3, 0.3 * 2 / 3, 0.3}));
  EXPECT_EQ(drop_path_rates(0.3, 2, false), (std::vector<double>{0.3, 0.3}));
  EXPECT_EQ(drop_path_rates(0.3, 1, true), (std::vector<double>{0}));
}

}  // namespace
}  // namespace tessera::nn
