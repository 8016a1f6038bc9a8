// The kernel's scan, its gradients and its steps against the composition.
#include "ops/selective_scan.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/inference.h"

namespace tessera::ops {
namespace {

using torch::Tensor;

constexpr int64_t kBatch = 2, kTokens = 37, kChannels = 20, kStates = 16;

SelectiveScanInputs random_scan(int64_t groups, bool reverse) {
  torch::manual_seed(3);
  SelectiveScanInputs in;
  in.u = torch::randn({kBatch, kTokens, kChannels}), in.delta = torch::randn_like(in.u) - 1;
  in.a = -torch::rand({kChannels, kStates}) * 3, in.z = torch::randn_like(in.u);
  in.b = groups > 0 ? torch::randn({kBatch, kTokens, groups, kStates}) : torch::randn({kChannels, kStates});
  in.c = torch::randn({kBatch, kTokens, kStates});
  in.d = torch::randn({kChannels}), in.delta_bias = torch::randn({kChannels});
  in.reverse = reverse;
  return in;
}

std::vector<Tensor*> tensors_of(SelectiveScanInputs& in) {
  return {&in.u, &in.delta, &in.a, &in.b, &in.c, &in.d, &in.z, &in.delta_bias};
}

// y, and the gradients of a weighted sum of it.
std::vector<Tensor> values_and_gradients(SelectiveScanInputs in, bool fused) {
  for (Tensor* t : tensors_of(in)) *t = t->detach().clone().requires_grad_();
  const Tensor y = fused ? selective_scan(in).y : selective_scan_unfused(in).y;
  torch::manual_seed(4);
  (y * torch::randn_like(y)).sum().backward();
  std::vector<Tensor> all{y.detach()};
  for (Tensor* t : tensors_of(in)) all.push_back(t->grad());
  return all;
}

TEST(SelectiveScan, KernelIsTheComposition) {
  for (const int64_t groups : {0, 1, 5})
    for (const bool reverse : {false, true}) {
      const SelectiveScanInputs in = random_scan(groups, reverse);
      const auto got = values_and_gradients(in, true), want = values_and_gradients(in, false);
      for (size_t i = 0; i < want.size(); ++i)
        // Sums of hundreds of floats in another order.
        EXPECT_LT((got[i] - want[i]).abs().max().item<double>(),
                  2e-5 * (1 + want[i].abs().max().item<double>()))
            << "tensor " << i << ", " << groups << " groups";
    }
}

TEST(SelectiveScan, StepsAreTheScan) {
  const torch::NoGradGuard no_grad;
  SelectiveScanInputs in = random_scan(1, false);
  const SelectiveScanResult whole = selective_scan(in, /*with_last_state=*/true);
  SelectiveScanInputs one = in;
  for (int64_t t = 0; t < kTokens; ++t) {
    one.u = in.u.select(1, t), one.delta = in.delta.select(1, t), one.z = in.z.select(1, t);
    one.b = in.b.select(1, t), one.c = in.c.select(1, t);
    const SelectiveScanResult step = selective_scan_step(one);
    EXPECT_TRUE(torch::allclose(step.y, whole.y.select(1, t), 0, 1e-6)) << "token " << t;
    one.first_state = step.last_state;
  }
  EXPECT_TRUE(torch::allclose(one.first_state, whole.last_state, 0, 1e-6));
}

TEST(SelectiveScan, CompositionHasTheGradientOfTheFirstState) {
  SelectiveScanInputs in = random_scan(1, false);
  in.first_state = torch::randn({kBatch, kChannels, kStates}).requires_grad_();
  selective_scan(in).y.sum().backward();
  EXPECT_GT(in.first_state.grad().abs().max().item<double>(), 0);
}

TEST(SelectiveScan, RefusesShapesThatDoNotFit) {
  SelectiveScanInputs in = random_scan(1, false);
  in.b = in.b.slice(1, 1);
  EXPECT_THROW(selective_scan(in), Error);
  in = random_scan(3, false);
  EXPECT_THROW(selective_scan(in), Error);  // 20 channels in 3 groups
}

TEST(CausalConvolution, KernelIsTheComposition) {
  for (const int64_t kernel : {2, 3, 4})
    for (const bool reverse : {false, true}) {
      torch::manual_seed(5);
      // A slice: rows are longer than their channels.
      const Tensor wide = torch::randn({kBatch, 300, 2 * kChannels}),
                   w = torch::randn({kChannels, 1, kernel}), bias = torch::randn({kChannels}),
                   weights = torch::randn({kBatch, 300, kChannels});
      std::vector<std::vector<Tensor>> both;
      for (const bool fused : {true, false}) {
        const Tensor x = wide.clone().requires_grad_(), w_ = w.clone().requires_grad_(),
                     b_ = bias.clone().requires_grad_();
        const auto run = fused ? causal_convolution_silu : causal_convolution_silu_unfused;
        const Tensor y = run(x.slice(2, kChannels), w_, b_, reverse);
        (y * weights).sum().backward();
        both.push_back({y.detach(), x.grad(), w_.grad(), b_.grad()});
      }
      for (size_t i = 0; i < both[0].size(); ++i)
        EXPECT_TRUE(torch::allclose(both[0][i], both[1][i], 1e-4, 1e-4))
            << "tensor " << i << ", kernel " << kernel;
    }
}

}  // namespace
}  // namespace tessera::ops
