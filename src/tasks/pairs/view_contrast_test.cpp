// SLIP: the loss between views and its head against plain formulas, and shares of processes against the
// whole.
#include "tasks/pairs/view_contrast.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <numeric>

#include "models/pairs/two_tower.h"
#include "tasks/base/losses.h"
#include "tasks/base/ring_testing.h"

namespace tessera::tasks {
namespace {

using torch::Tensor;

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LT((a[i] - b[i]).abs().max().item<double>(), 1e-12) << i;
}

// Chen et al. 2020, eq. 1: all views in one list; the two of an image are `batch` apart.
Tensor simclr(const Tensor& a, const Tensor& b, double temperature) {
  const Tensor z = torch::cat({a, b});
  const int64_t count = a.size(0);
  const Tensor logits =
      (z.mm(z.t()) / temperature).masked_fill(torch::eye(2 * count, torch::kBool), -INFINITY);
  const Tensor other = (torch::arange(2 * count) + count).remainder(2 * count);
  return cross_entropy(logits, other, {.sum = true}) / 2;
}

TEST(ViewContrast, IsTheFormulaWithItsGradients) {
  torch::manual_seed(2);
  const Tensor a = torch::randn({6, 5}, torch::kFloat64).requires_grad_(),
               b = torch::randn({6, 5}, torch::kFloat64).requires_grad_();
  const Tensor u = models::normalised_rows(a), v = models::normalised_rows(b);
  const Tensor want = simclr(u, v, 0.1);
  const auto gradients = [&](const Tensor& loss) {
    return torch::autograd::grad({loss}, {a, b}, {}, /*retain_graph=*/true);
  };
  for (const int64_t chunk : {1, 4, 128}) {
    const Tensor got = view_contrast(u, v, 0.1, 0, chunk, Collective::alone()).sum;
    EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-12);
    expect_same(gradients(got), gradients(want));
  }
}

TEST(ViewContrast, ViewsOfAllProcessesComeByInARing) {
  torch::manual_seed(2);
  const Tensor a = models::normalised_rows(torch::randn({7, 5}, torch::kFloat64)),
               b = models::normalised_rows(torch::randn({7, 5}, torch::kFloat64));
  const Tensor want = simclr(a, b, 0.1);
  for (const int64_t size : {2, 3, 4}) {
    std::vector<double> sums(static_cast<size_t>(size));
    RingOfThreads::run(size, [&](Collective& others) {
      const int64_t first = 7 * others.rank() / size, last = 7 * (others.rank() + 1) / size;
      sums[static_cast<size_t>(others.rank())] =
          view_contrast(a.slice(0, first, last), b.slice(0, first, last), 0.1, first, 2, others)
              .sum.item<double>();
    });
    EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.0), want.item<double>(), 1e-12) << size;
  }
}

TEST(ViewContrast, CountsViewsThatAreNearestToEachOther) {
  const Tensor a = torch::eye(4, torch::kFloat64);
  EXPECT_EQ(view_contrast(a, a, 0.1, 0, 3, Collective::alone()).right.item<double>(), 4);
  EXPECT_EQ(view_contrast(a, a.roll(1, 0), 0.1, 0, 3, Collective::alone()).right.item<double>(), 0);
}

TEST(ViewContrast, TheHeadIsThreeLayersWithNormsOverTheBatch) {
  ViewHead head(3, {.hidden = 5, .dim = 4});
  head.initialise(1);
  head.to(torch::kFloat64);
  torch::manual_seed(3);
  {
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : head.named_parameters())
      if (parameter.key().starts_with("bn")) parameter.value().copy_(torch::randn(5, torch::kFloat64));
  }
  const Tensor x = torch::randn({7, 3}, torch::kFloat64).requires_grad_();
  const auto p = head.named_parameters();
  const auto layer = [&](const Tensor& in, const std::string& number) {
    return in.mm(p["layer" + number + ".weight"].t()) + p["layer" + number + ".bias"];
  };
  const auto norm = [&](const Tensor& in, const std::string& number) {
    return torch::batch_norm(in, p["bn" + number + ".weight"], p["bn" + number + ".bias"], {}, {}, true, 0,
                             1e-5, false);
  };
  const Tensor want =
      models::normalised_rows(layer(norm(layer(norm(layer(x, "1"), "1").relu(), "2"), "2").relu(), "3"));
  const Tensor got = head.forward(x, 7, Collective::alone());
  EXPECT_LT((got - want).abs().max().item<double>(), 1e-12);
  const Tensor weights = torch::randn_like(want);
  std::vector<Tensor> leaves = head.parameters();
  leaves.push_back(x);
  expect_same(torch::autograd::grad({(got * weights).sum()}, leaves),
              torch::autograd::grad({(want * weights).sum()}, leaves));
}

}  // namespace
}  // namespace tessera::tasks
