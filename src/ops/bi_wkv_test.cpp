// The kernel's WKV and its gradients against the composition, the published numbers, and the shift.
#include "ops/bi_wkv.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::ops {
namespace {

using torch::Tensor;

TEST(BiWkv, KernelIsTheComposition) {
  for (const double decay : {0.01, 1.0, 6.0}) {
    torch::manual_seed(3);
    const Tensor w = (torch::rand({20}) - 0.1) * decay, u = torch::randn({20}), k = torch::randn({2, 41, 40}),
                 v = torch::randn({2, 41, 20}), weights = torch::randn({2, 41, 20});
    std::vector<std::vector<Tensor>> both;
    for (const bool fused : {true, false}) {
      std::vector<Tensor> leaves;
      for (const Tensor& t : {w, u, k, v}) leaves.push_back(t.clone().requires_grad_());
      const Tensor y =
          (fused ? bi_wkv : bi_wkv_unfused)(leaves[0], leaves[1], leaves[2].slice(2, 20), leaves[3]);
      (y * weights).sum().backward();
      both.push_back({y.detach()});
      for (const Tensor& leaf : leaves) both.back().push_back(leaf.grad());
    }
    for (size_t i = 0; i < both[0].size(); ++i)
      EXPECT_LT((both[0][i] - both[1][i]).abs().max().item<double>(),
                1e-4 * (1 + both[1][i].abs().max().item<double>()))
          << "tensor " << i << ", decay " << decay;
  }
}

// Without decay all other tokens count equally in both forms.
TEST(BiWkv, WithoutDecayThePublishedNumbersAreTheFormula) {
  torch::manual_seed(4);
  const auto doubles = torch::TensorOptions(torch::kFloat64);
  const Tensor w = torch::zeros({6}, doubles), u = torch::randn({6}, doubles),
               k = torch::randn({2, 70, 6}, doubles), v = torch::randn({2, 70, 6}, doubles);
  const Tensor formula = bi_wkv(w, u, k, v);
  EXPECT_TRUE(torch::allclose(bi_wkv_published(w, u, k, v), formula, 0, 1e-5));
  EXPECT_GT((bi_wkv_published(w + 0.05, u, k, v) - bi_wkv(w + 0.05, u, k, v)).abs().max().item<double>(),
            1e-3);
}

// The shift of a map with one cell set moves that cell, by part of the channels.
TEST(QuadShift, MovesFourPartsOfTheChannels) {
  Tensor x = torch::zeros({1, 12, 9});  // 3 x 4 cells; parts of int(9 * 0.2 i) channels: 1, 2, 2, 2
  x.select(1, 5).fill_(1);              // row 1, column 1
  const Tensor y = quad_shift(x, 3, 4, 0.2, 1).view({3, 4, 9});
  const auto cell_of = [&](int64_t channel) {
    return y.select(2, channel).flatten().argmax().item<int64_t>();
  };
  const std::vector<int64_t> cells = {6, 4, 4, 9, 9, 1, 1, 5, 5};
  for (int64_t channel = 0; channel < 9; ++channel)
    EXPECT_EQ(cell_of(channel), cells[static_cast<size_t>(channel)]) << "channel " << channel;
  EXPECT_EQ(quad_shift(x, 3, 4, 0.25, 9).slice(2, 0, 8).abs().max().item<double>(), 0);  // beyond the map
  EXPECT_THROW(quad_shift(x, 3, 5, 0.25, 1), Error);
}

}  // namespace
}  // namespace tessera::ops
