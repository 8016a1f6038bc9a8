// Compares the laid-out convolution with its composition, and checks that it detects changes.
#include "ops/convolution.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/inference.h"

namespace tessera::ops {
namespace {

using torch::Tensor;

struct Case {
  int64_t in, out, kernel, stride, padding, dilation, groups;
  bool norm, residual, relu, bias;
};

// The shapes in our models, at widths around a vector of 16 channels.
const Case kCases[] = {
    {3, 24, 7, 2, 3, 1, 1, true, false, true, false},   {16, 40, 1, 1, 0, 1, 1, true, true, true, false},
    {40, 16, 1, 2, 0, 1, 1, true, false, false, false}, {17, 33, 3, 2, 1, 1, 1, true, false, true, false},
    {32, 32, 3, 1, 2, 2, 1, true, true, true, true},    {24, 24, 7, 1, 3, 1, 24, false, false, false, true},
    {16, 48, 2, 2, 0, 1, 1, false, false, false, true}, {8, 8, 3, 1, 1, 1, 1, false, true, false, false},
    {144, 136, 3, 1, 1, 1, 1, true, true, true, true},  {66, 64, 3, 1, 1, 1, 1, false, false, true, false},
};

struct Layer {
  ConvolutionParameters parameters;
  ConvolutionEpilogue epilogue;
  Tensor x;
};

Layer make(const Case& c, int64_t rows, int64_t columns) {
  torch::manual_seed(4);
  Layer layer;
  layer.parameters = {
      torch::randn({c.out, c.in / c.groups, c.kernel, c.kernel}) / static_cast<double>(c.kernel),
      c.bias ? torch::randn({c.out}) : Tensor(),
      c.stride,
      c.padding,
      c.dilation,
      c.groups};
  layer.x = torch::randn({2, rows, columns, c.in});
  if (c.norm)
    layer.epilogue.norm = {torch::randn({c.out}), torch::rand({c.out}) + 0.5, torch::randn({c.out}),
                           torch::randn({c.out})};
  const InferenceScope composed({.fused = false});
  if (c.residual)
    layer.epilogue.residual = torch::randn_like(convolution_unfused(layer.x, layer.parameters, {}));
  layer.epilogue.relu = c.relu;
  return layer;
}

TEST(Convolution, IsItsComposition) {
  const torch::NoGradGuard no_grad;
  for (const Case& c : kCases)
    for (const auto& [rows, columns] : {std::pair{9, 12}, {7, 7}, {2, 2}, {2, 5}, {11, 16}}) {
      const Layer layer = make(c, rows, columns);
      ConvolutionCache cache;
      const Tensor want = convolution_unfused(layer.x, layer.parameters, layer.epilogue);
      const Tensor got = convolution(layer.x, layer.parameters, layer.epilogue, cache);
      ASSERT_EQ(got.sizes(), want.sizes());
      EXPECT_TRUE(got.is_contiguous());
      EXPECT_TRUE(torch::allclose(got, want, 1e-4, 1e-4)) << (got - want).abs().max();
    }
}

// Weights, inputs and results are rounded to 8 bits: a sum of n products is off by some sqrt(n) / 256 of one.
TEST(Convolution, RoundsToBfloat16UnderAutocast) {
  const torch::NoGradGuard no_grad;
  for (const Case& c : kCases) {
    const Layer layer = make(c, 8, 8);
    ConvolutionCache cache;
    const Tensor want = convolution_unfused(layer.x, layer.parameters, layer.epilogue);
    at::autocast::set_autocast_dtype(torch::kCPU, torch::kBFloat16);
    at::autocast::set_autocast_enabled(torch::kCPU, true);
    const Tensor got = convolution(layer.x, layer.parameters, layer.epilogue, cache);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(torch::kCPU, false);
    EXPECT_EQ(got.scalar_type(), torch::kBFloat16);
    const double largest = want.abs().max().item<double>();
    EXPECT_LE((got.to(torch::kFloat32) - want).abs().max().item<double>(), 0.03 * largest);
  }
}

TEST(Convolution, NoticesWhatChanges) {
  const torch::NoGradGuard no_grad;
  Layer layer = make(kCases[1], 6, 6);
  ConvolutionCache cache;
  const ChannelNorm& norm = layer.epilogue.norm;
  for (const Tensor& tensor :
       {layer.parameters.weight, norm.mean, norm.variance, norm.weight, norm.bias, layer.epilogue.residual}) {
    const Tensor before = convolution(layer.x, layer.parameters, layer.epilogue, cache);
    Tensor(tensor).add_(0.25);
    const Tensor after = convolution(layer.x, layer.parameters, layer.epilogue, cache);
    EXPECT_FALSE(torch::allclose(before, after));
    EXPECT_TRUE(
        torch::allclose(after, convolution_unfused(layer.x, layer.parameters, layer.epilogue), 1e-4, 1e-4));
  }
}

// LibTorch's own gradient of the weights crashes for these sizes, with two threads on AVX-512.
TEST(Convolution, StepsOverCellsOfFewChannels) {
  for (const int64_t channels : {4, 6, 12}) {
    const Tensor x = torch::randn({3, 17, 16, channels}, torch::kFloat64),
                 weight = torch::randn({10, channels, 1, 1}, torch::kFloat64).requires_grad_();
    ConvolutionCache cache;
    const Tensor y =
        convolution(x.to(torch::kFloat32), {.weight = weight.to(torch::kFloat32), .stride = 2}, {}, cache);
    y.sum().backward();
    const Tensor got = weight.grad().clone(), want = torch::conv2d(x.permute({0, 3, 1, 2}), weight, {}, 2);
    weight.mutable_grad().zero_();
    want.sum().backward();
    EXPECT_TRUE(torch::allclose(y.to(torch::kFloat64), want.permute({0, 2, 3, 1}), 1e-4, 1e-4));
    EXPECT_TRUE(torch::allclose(got, weight.grad(), 1e-4, 1e-3));
  }
}

TEST(Convolution, GivesGradientsAndDoubles) {
  Layer layer = make(kCases[4], 6, 6);
  ConvolutionCache cache;
  layer.x.requires_grad_();
  convolution(layer.x, layer.parameters, layer.epilogue, cache).sum().backward();
  EXPECT_TRUE(layer.x.grad().defined());
  const torch::NoGradGuard no_grad;
  const Tensor wide =
      convolution(layer.x.to(torch::kFloat64), {layer.parameters.weight.to(torch::kFloat64)}, {}, cache);
  EXPECT_EQ(wide.scalar_type(), torch::kFloat64);
}

// Gradients of our 3x3 kernel against ATen's, in float and under autocast. The bound is relative to the
// largest of each: in bfloat16 the two round x, weight, dy and y to 8 bits at different places.
TEST(Convolution, GradientsOfThreeByThreeAreATens) {
  Layer layer = make(kCases[8], 14, 16);
  ConvolutionParameters& p = layer.parameters;
  p.weight.requires_grad_(), p.bias.requires_grad_(), layer.x.requires_grad_();
  const Tensor dy = torch::randn_like(layer.epilogue.residual);
  const auto gradients = [&] {
    ConvolutionCache cache;
    const Tensor y = convolution(layer.x, p, {}, cache);
    return torch::autograd::grad({(y * dy).sum()}, {layer.x, p.weight, p.bias});
  };
  const auto composed = [&] {
    const InferenceScope reference({.fused = false});
    return gradients();
  }();
  for (const auto& [bf16, tolerance] : {std::pair{false, 2e-5}, {true, 0.02}}) {
    at::autocast::set_autocast_dtype(torch::kCPU, torch::kBFloat16);
    at::autocast::set_autocast_enabled(torch::kCPU, bf16);
    const auto fused = gradients();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(torch::kCPU, false);
    for (size_t i = 0; i < fused.size(); ++i) {
      EXPECT_EQ(fused[i].scalar_type(), torch::kFloat32);
      const double largest = composed[i].abs().max().item<double>();
      EXPECT_LE((fused[i] - composed[i]).abs().max().item<double>(), tolerance * largest) << i;
    }
  }
}

// A layer for maps of several sizes, each with its form: packing for one keeps the packing for the other.
TEST(Convolution, FormsDoNotPackAgainInTurns) {
  const torch::NoGradGuard no_grad;
  const Layer layer = make(kCases[8], 14, 16);
  ConvolutionCache cache;
  const auto winograd = [&] {
    return cache.packed(layer.parameters, layer.epilogue.norm, torch::kFloat32, {});
  };
  const auto onednn = [&] {
    return cache.packed(layer.parameters, layer.epilogue.norm, torch::kFloat32, {2, 144, 5, 5});
  };
  const auto first = winograd(), second = onednn();
  EXPECT_EQ(winograd(), first);
  EXPECT_EQ(onednn(), second);
  Tensor(layer.parameters.weight).add_(0.25);
  EXPECT_NE(winograd(), first);
  EXPECT_NE(onednn(), second);
}

// If memory is short, nothing is kept with the layer, and the result is the same.
TEST(Convolution, KeepsNothingWhereMemoryIsShort) {
  const torch::NoGradGuard no_grad;
  for (const int64_t side : {5, 14}) {  // laid out for oneDNN, or transformed by Winograd
    const Layer layer = make(kCases[8], side, side);
    ConvolutionCache cache, other;
    const Tensor kept = convolution(layer.x, layer.parameters, layer.epilogue, cache);
    const InferenceScope sparing({.keep_packed = false});
    EXPECT_TRUE(torch::equal(convolution(layer.x, layer.parameters, layer.epilogue, other), kept));
    const auto packed = [&] {
      return other.packed(layer.parameters, layer.epilogue.norm, torch::kFloat32, {});
    };
    EXPECT_NE(packed(), packed());
  }
}

// Recomputation for a gradient repeats the values computed without one; a frozen weight needs none.
TEST(Convolution, RecomputesTheSameBits) {
  Layer layer = make(kCases[8], 14, 16);
  ConvolutionCache cache;
  layer.x.requires_grad_();
  const Tensor recorded = convolution(layer.x, layer.parameters, layer.epilogue, cache);
  recorded.sum().backward();
  EXPECT_FALSE(layer.parameters.weight.grad().defined());
  const torch::NoGradGuard no_grad;
  const InferenceScope later({.gradients_follow = true});
  EXPECT_TRUE(torch::equal(convolution(layer.x, layer.parameters, layer.epilogue, cache), recorded));
}

TEST(Convolution, RefusesWhatDoesNotFit) {
  const Layer layer = make(kCases[3], 9, 9);
  ConvolutionCache cache;
  EXPECT_ANY_THROW(convolution(torch::randn({2, 9, 9, 16}), layer.parameters, {}, cache));
  EXPECT_ANY_THROW(convolution(torch::randn({9, 9, 17}), layer.parameters, {}, cache));
  const ConvolutionParameters unpadded{torch::randn({4, 17, 3, 3})};
  EXPECT_ANY_THROW(convolution(torch::randn({2, 2, 9, 17}), unpadded, {}, cache));
}

}  // namespace
}  // namespace tessera::ops
