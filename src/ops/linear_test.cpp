#include "ops/linear.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <optional>

#include "core/error.h"
#include "ops/inference.h"
#include "ops/norm.h"

namespace tessera::ops {
namespace {

using torch::Tensor;

LinearParameters parameters_of(kernels::Activation activation) {
  torch::manual_seed(3);
  LinearParameters p{torch::randn({70, 50}) / 7, torch::randn({70}), activation};
  if (activation == kernels::Activation::silu_gate) p.gate = torch::randn({70, 50}) / 7;
  p.scale = torch::rand({70}) + 0.5;
  return p;
}

double relative(const Tensor& got, const Tensor& want) {
  return ((got.to(torch::kFloat64) - want).abs().max() / want.abs().max()).item<double>();
}

struct Autocast {
  Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

TEST(LinearOp, IsItsCompositionInEveryArithmetic) {
  using enum kernels::Activation;
  for (const auto activation : {none, gelu, silu_gate}) {
    LinearParameters p = parameters_of(activation), exact = p;
    if (activation == silu_gate) p.bias = exact.bias = Tensor();
    const Tensor x = torch::randn({3, 5, 50}), residual = torch::randn({3, 5, 70});
    for (Tensor* t : {&exact.weight, &exact.bias, &exact.gate, &exact.scale})
      if (t->defined()) *t = t->to(torch::kFloat64);
    const Tensor want = linear_unfused(x.to(torch::kFloat64), exact, residual.to(torch::kFloat64));
    const torch::NoGradGuard no_grad;
    LinearCache cache;
    EXPECT_LT(relative(linear(x, p, residual, cache), want), 2e-6);
    {
      const Autocast autocast;
      const Tensor y = linear(x, p, residual, cache);
      EXPECT_EQ(y.scalar_type(), torch::kFloat32);
      const double unfused = relative(linear_unfused(x, p, residual), want);
      EXPECT_LT(relative(y, want), 2 * unfused);
      EXPECT_EQ(linear(x, p, {}, cache).scalar_type(), torch::kBFloat16);
    }
    const InferenceScope scope({.int8 = true});
    const double error = relative(linear(x, p, residual, cache), want);
    EXPECT_LT(error, 0.03);
    EXPECT_GT(error, 1e-4);  // it was int8
  }
}

TEST(LinearOp, WeightsArePackedOnceAndAgainWhenTheyChange) {
  const torch::NoGradGuard no_grad;
  LinearParameters p = parameters_of(kernels::Activation::none);
  p.scale = Tensor();
  LinearCache cache;
  const Tensor x = torch::randn({4, 50});
  const auto expect_current = [&] {
    EXPECT_TRUE(torch::allclose(linear(x, p, {}, cache), linear_unfused(x, p, {}), 1e-4, 1e-5));
  };
  expect_current();
  const auto first = cache.packed(p, kernels::Arithmetic::f32);
  EXPECT_EQ(cache.packed(p, kernels::Arithmetic::f32), first);
  p.weight.mul_(2);
  expect_current();
  EXPECT_NE(cache.packed(p, kernels::Arithmetic::f32), first);
  p.bias.add_(1);
  expect_current();
  p.weight.set_data(torch::randn({70, 50}));
  expect_current();
}

TEST(LinearOp, GradientsAreNotFusedAndTheReferenceTakesTheComposition) {
  const LinearParameters p = parameters_of(kernels::Activation::gelu);
  const Tensor x = torch::randn({2, 50}).requires_grad_();
  LinearCache cache;
  linear(x, p, {}, cache).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(fused_arithmetic(x).has_value());
  {
    const InferenceScope scope({.gradients_follow = true});
    EXPECT_FALSE(fused_arithmetic(x).has_value());
  }
  const InferenceScope scope({.fused = false});
  EXPECT_FALSE(fused_arithmetic(x).has_value());
  EXPECT_TRUE(torch::equal(linear(x, p, {}, cache), linear_unfused(x, p, {})));
}

// Against float64, beside ATen's own in the same precision.
TEST(LinearOp, GradientsAreThoseOfTheComposition) {
  for (const bool bf16 : {false, true})
    for (const auto activation : {kernels::Activation::none, kernels::Activation::gelu}) {
      const LinearParameters p = parameters_of(activation);
      const Tensor x = torch::randn({3, 11, 50}), residual = torch::randn({3, 11, 70}),
                   weights = torch::randn({3, 11, 70});
      const auto gradients = [&](torch::ScalarType type, bool fused) {
        const auto leaf = [&](const Tensor& t) { return t.to(type, false, true).requires_grad_(); };
        const LinearParameters q{leaf(p.weight), leaf(p.bias), activation, {}, leaf(p.scale)};
        const Tensor in = leaf(x);
        LinearCache cache;
        {
          std::optional<Autocast> autocast;
          if (bf16 && type == torch::kFloat32) autocast.emplace();
          const Tensor y =
              fused ? linear(in, q, residual.to(type), cache) : linear_unfused(in, q, residual.to(type));
          (y * weights.to(type)).sum().backward();
        }
        return std::vector<Tensor>{in.grad(), q.weight.grad(), q.bias.grad(), q.scale.grad()};
      };
      const auto want = gradients(torch::kFloat64, false), got = gradients(torch::kFloat32, true),
                 theirs = gradients(torch::kFloat32, false);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LT(relative(got[i], want[i]), 2 * relative(theirs[i], want[i]) + 1e-6) << i << " " << bf16;
    }
}

TEST(LinearOp, WhatIsComputedAgainIsTheSameToTheLastBit) {
  const LinearParameters p = parameters_of(kernels::Activation::gelu);
  const Tensor x = torch::randn({7, 50}).requires_grad_();
  LinearCache cache;
  const Autocast autocast;
  const Tensor recorded = linear(x, p, {}, cache);
  const torch::NoGradGuard no_grad;
  const InferenceScope scope({.gradients_follow = true});
  EXPECT_TRUE(torch::equal(linear(x, p, {}, cache), recorded));
}

TEST(LinearOp, RowsMayLieApartAndSizesAreChecked) {
  const torch::NoGradGuard no_grad;
  const LinearParameters p = parameters_of(kernels::Activation::none);
  LinearCache cache;
  const Tensor wide = torch::randn({6, 3, 50});
  for (const Tensor& x : {wide.select(1, 1), wide.transpose(0, 1), wide.slice(1, 1)})
    EXPECT_TRUE(torch::allclose(linear(x, p, {}, cache), linear_unfused(x, p, {}), 1e-4, 1e-5));
  EXPECT_THROW(linear(torch::randn({2, 49}), p, {}, cache), Error);
  EXPECT_THROW(linear(torch::randn({2, 50}), p, torch::randn({3, 70}), cache), Error);
  EXPECT_EQ(linear(torch::randn({0, 50}), p, {}, cache).size(0), 0);
}

TEST(NormOp, IsItsComposition) {
  const Tensor x = torch::randn({4, 7, 37}) * 3 + 1, weight = torch::rand({37}), bias = torch::randn({37});
  const Tensor layer = torch::layer_norm(x, {37}, weight, bias, 1e-6);
  const Tensor rms = rms_norm(x, weight, 1e-6);  // with gradients enabled: composed
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::allclose(layer_norm(x, weight, bias, 1e-6), layer, 1e-5, 1e-5));
  EXPECT_TRUE(
      torch::allclose(layer_norm(x.transpose(0, 1), weight, bias, 1e-6), layer.transpose(0, 1), 1e-5, 1e-5));
  EXPECT_TRUE(torch::allclose(rms_norm(x, weight, 1e-6), rms, 1e-5, 1e-5));
  const Autocast autocast;
  EXPECT_EQ(layer_norm(x, weight, bias, 1e-6).scalar_type(), torch::kBFloat16);
}

}  // namespace
}  // namespace tessera::ops
