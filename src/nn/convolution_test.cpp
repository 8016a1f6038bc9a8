#include "nn/convolution.h"

#include <gtest/gtest.h>

#include <array>

#include "nn/units.h"

namespace tessera::nn {
namespace {

using torch::Tensor;

void draw(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : module.parameters()) parameter.copy_(torch::randn_like(parameter));
}

TEST(BatchNorm2d, IsTorchsOverTheChannels) {
  BatchNorm2d norm(5);
  draw(*norm);
  Tensor mean = torch::zeros({5}), variance = torch::ones({5});
  const Tensor x = torch::randn({3, 4, 6, 5}) * 3 + 1;
  const auto want = [&](bool training) {
    return torch::batch_norm(x.permute({0, 3, 1, 2}), norm->weight, norm->bias, mean, variance, training, 0.1,
                             1e-5, false)
        .permute({0, 2, 3, 1});
  };
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(torch::allclose(norm(x), want(true), 1e-5, 1e-5)) << step;
  EXPECT_TRUE(torch::allclose(norm->running_mean, mean));
  EXPECT_TRUE(torch::allclose(norm->running_var, variance));
  norm->eval();
  EXPECT_TRUE(torch::allclose(norm(x), want(false), 1e-5, 1e-5));
}

// Folded weights are laid out again after any change of the running statistics.
TEST(BatchNorm2d, FoldedWeightsFollowTheStatistics) {
  Conv2d conv(Conv2dOptions{.in = 4, .out = 6, .kernel = 3, .padding = 1});
  BatchNorm2d norm(6);
  draw(*conv), draw(*norm);
  const torch::NoGradGuard no_grad;
  const Tensor x = torch::randn({2, 5, 5, 4});
  for (int step = 0; step < 3; ++step) {
    norm->train();
    convolve(conv, norm, x);  // changes the statistics, but no parameter
    norm->eval();
    EXPECT_TRUE(torch::allclose(convolve(conv, norm, x, false), norm(conv(x)), 1e-4, 1e-4)) << step;
  }
}

TEST(BatchNorm2d, RecomputingMovesTheStatisticsOnce) {
  const auto statistics = [](bool recomputed) {
    torch::manual_seed(1);
    BatchNorm2d norm(3);
    const Tensor x = torch::randn({2, 4, 4, 3}).requires_grad_();
    const auto body = [&](const Tensor& in) { return norm(in).square(); };
    (recomputed ? checkpoint(body, x, norm->parameters()) : body(x)).sum().backward();
    EXPECT_FALSE(recomputing());
    return torch::cat({norm->running_mean, norm->running_var, x.grad().flatten()});
  };
  EXPECT_TRUE(torch::equal(statistics(false), statistics(true)));
}

TEST(Conv2d, ExtentsAreThoseOfItsResult) {
  const torch::NoGradGuard no_grad;
  for (const int64_t size : {7, 8, 9, 13})
    for (const auto& options : {Conv2dOptions{.in = 2, .out = 3, .kernel = 3, .stride = 2, .padding = 1},
                                Conv2dOptions{.in = 2, .out = 3, .kernel = 7, .stride = 2, .padding = 3},
                                Conv2dOptions{.in = 2, .out = 3, .kernel = 3, .padding = 2, .dilation = 2},
                                Conv2dOptions{.in = 2, .out = 3, .kernel = 2, .stride = 2}}) {
      Conv2d conv(options);
      const Tensor y = conv(torch::randn({1, size, size + 3, 2}));
      EXPECT_EQ(y.sizes(), (std::vector<int64_t>{1, conv->extent(size), conv->extent(size + 3), 3}));
    }
}

// Odd widths and maps, forward and backward, with packed weights (many rows, or no gradients) and without.
TEST(DoublingConvolution, IsTorchsTransposedConvolution) {
  for (const auto [in, out, rows, columns] :
       std::vector<std::array<int64_t, 4>>{{3, 5, 1, 1}, {16, 7, 4, 3}, {33, 64, 5, 9}, {32, 16, 24, 23}}) {
    for (const auto dtype : {torch::kFloat64, torch::kFloat32}) {
      DoublingConvolution doubling(in, out);
      doubling->to(dtype);
      draw(*doubling);
      const Tensor x = torch::randn({2, rows, columns, in}, dtype).requires_grad_();
      const Tensor weight = doubling->weight.detach().clone().requires_grad_(),
                   bias = doubling->bias.detach().clone().requires_grad_(),
                   other = x.detach().clone().requires_grad_();
      const Tensor want =
          torch::conv_transpose2d(other.permute({0, 3, 1, 2}), weight, bias, 2).permute({0, 2, 3, 1});
      const Tensor got = doubling(x);
      const double tolerance = dtype == torch::kFloat64 ? 1e-12 : 1e-4;
      const auto near = [&](const Tensor& a, const Tensor& b) {
        return torch::allclose(a, b, tolerance, tolerance);
      };
      EXPECT_TRUE(near(got, want));
      const Tensor along = torch::randn(want.sizes(), dtype);
      (got * along).sum().backward(), (want * along).sum().backward();
      EXPECT_TRUE(near(x.grad(), other.grad()));
      EXPECT_TRUE(near(doubling->weight.grad(), weight.grad()));
      EXPECT_TRUE(near(doubling->bias.grad(), bias.grad()));
      const torch::NoGradGuard no_grad;
      EXPECT_TRUE(near(doubling(x), want));
      doubling->weight.mul_(2);
      EXPECT_TRUE(near(doubling(x) + bias, 2 * want));
      EXPECT_EQ(doubling(x.narrow(0, 0, 0)).sizes(), (std::vector<int64_t>{0, 2 * rows, 2 * columns, out}));
      if (dtype == torch::kFloat64) continue;
      const Tensor half = doubling(x.detach().to(torch::kBFloat16));
      EXPECT_TRUE(torch::allclose(half.to(dtype) + bias, 2 * want, 0.05, 0.3));
    }
  }
}

}  // namespace
}  // namespace tessera::nn
