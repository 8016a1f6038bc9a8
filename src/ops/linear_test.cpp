#include "ops/linear.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <optional>

#include "core/error.h"
#include "ops/inference.h"
#include "ops/lsq.h"
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
    EXPECT_GT(error, 1e-4);  // proves that it was int8
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
  for (int i = 0; i < 8; ++i) {  // the old memory may be reused
    p.weight = Tensor();
    p.weight = torch::randn({70, 50});
    expect_current();
  }
}

// Fake quantisation trains the int8 computation: the integers are the same, and only the sums' rounding
// differs. Includes numbers beyond the range on both sides.
TEST(LinearOp, LearnedStepsGiveTheIntegersOfFakeQuantisation) {
  torch::manual_seed(4);
  const Tensor x = torch::randn({40, 90}), w = torch::randn({70, 90}), none = torch::zeros({40, 70});
  const auto range = quantised_range(8, true);
  LinearParameters p{.weight = w, .bias = torch::randn({70})};
  p.weight_log_step = (torch::rand({70}) * 0.01 + 0.01).log();
  p.input_log_step = torch::full({1}, 0.013).log();
  const Tensor fake = learned_step_size_quantise(x, p.input_log_step.exp(), range);
  ASSERT_GT((fake == fake.min()).sum().item<int64_t>(), 10);
  LinearParameters exact{.weight =
                             learned_step_size_quantise(w, p.weight_log_step.exp().unsqueeze(1), range)};
  exact.weight = exact.weight.to(torch::kFloat64), exact.bias = p.bias.to(torch::kFloat64);
  const Tensor want = linear_unfused(fake.to(torch::kFloat64), exact, none.to(torch::kFloat64));
  const torch::NoGradGuard no_grad;
  LinearCache cache;
  EXPECT_LT(relative(linear(fake, p, none, cache), want), 2e-6);  // in float, the weights are rounded too
  const InferenceScope scope({.int8 = true});
  EXPECT_LT(relative(linear(x, p, none, cache), want), 1e-6);
  p.input_log_step.add_(1);
  EXPECT_GT(relative(linear(x, p, none, cache), want), 1e-3);

  // The integers themselves: the unit matrix on steps of one.
  const LinearParameters unit{.weight = torch::eye(90),
                              .weight_log_step = torch::zeros({90}),
                              .input_log_step = torch::full({1}, 0.02).log()};
  const Tensor step = unit.input_log_step.exp();
  const Tensor halves =
      torch::cat({x, (torch::arange(-200, 200) + 0.5).slice(0, 0, 360).view({4, 90}) * step});
  LinearCache units;
  EXPECT_TRUE(torch::equal(linear(halves, unit, torch::zeros_like(halves), units),
                           learned_step_size_quantise(halves, step, range)));
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

// As in adaLN: each sample has its own norm before and scale after.
TEST(LinearOp, SamplesMayHaveNormsAndScalesOfTheirOwn) {
  for (const auto activation : {kernels::Activation::none, kernels::Activation::gelu_tanh})
    for (const bool centred : {true, false}) {
      LinearParameters p = parameters_of(activation), exact = p;
      p.scale = torch::randn({3, 140}).slice(1, 0, 70);  // strided, like a part of a modulation
      for (Tensor* t : {&exact.weight, &exact.bias}) *t = t->to(torch::kFloat64);
      exact.scale = p.scale.to(torch::kFloat64);
      const NormParameters before{torch::rand({3, 50}) + 0.5, torch::randn({3, 100}).slice(1, 0, 50), 1e-3,
                                  centred};
      const NormParameters wide{before.weight.to(torch::kFloat64), before.bias.to(torch::kFloat64), 1e-3,
                                centred};
      const Tensor x = torch::randn({3, 11, 50}) * 2 + 1, residual = torch::randn({3, 11, 70});
      LinearCache cache, other;
      const Tensor want = linear(x.to(torch::kFloat64), exact, residual.to(torch::kFloat64), other, wide);
      // Each sample alone, with its own numbers for all rows.
      for (int64_t s = 0; s < 3; ++s) {
        LinearParameters one = exact;
        one.scale = exact.scale[s];
        const NormParameters own{wide.weight[s], wide.bias[s], 1e-3, centred};
        EXPECT_LT(relative(linear(x[s].to(torch::kFloat64), one, residual[s].to(torch::kFloat64), other, own),
                           want[s]),
                  1e-12);
      }
      const torch::NoGradGuard no_grad;
      EXPECT_LT(relative(linear(x, p, residual, cache, before), want), 2e-6);
      const auto packed = cache.packed({p.weight, p.bias, p.activation}, kernels::Arithmetic::f32);
      p.scale = p.scale + 1;
      linear(x, p, residual, cache, before);
      EXPECT_EQ(cache.packed({p.weight, p.bias, p.activation}, kernels::Arithmetic::f32), packed);
      p.scale = p.scale - 1;
      {
        const Autocast autocast;
        EXPECT_LT(relative(linear(x, p, residual, cache, before), want), 0.01);
      }
      const InferenceScope scope({.int8 = true});
      EXPECT_LT(relative(linear(x, p, residual, cache, before), want), 0.03);
    }
  LinearCache cache;
  const torch::NoGradGuard no_grad;
  LinearParameters p{.weight = torch::randn({70, 50}), .scale = torch::ones({3, 70})};
  EXPECT_THROW(linear(torch::randn({2, 50}), p, {}, cache), Error);  // two rows cannot be three samples
  p.scale = Tensor();
  EXPECT_THROW(linear(torch::randn({4, 50}), p, {}, cache, {.weight = torch::ones({3, 50})}), Error);
}

// Gradients of all inputs: of x, of each parameter and of the residual.
std::vector<Tensor> gradients_of(const LinearParameters& p, const Tensor& x, const Tensor& residual,
                                 torch::ScalarType type, bool bf16, bool fused) {
  std::vector<Tensor> leaves;
  const auto leaf = [&](const Tensor& t) {
    if (!t.defined()) return t;
    return leaves.emplace_back(t.to(type, false, true).requires_grad_());
  };
  const LinearParameters q{leaf(p.weight), leaf(p.bias), p.activation, leaf(p.gate), leaf(p.scale)};
  const Tensor in = leaf(x), before = leaf(residual);
  torch::manual_seed(5);
  const Tensor weights = torch::randn({x.size(0), 11, 70}).to(type);
  LinearCache cache;
  std::optional<Autocast> autocast;
  if (bf16 && type == torch::kFloat32) autocast.emplace();
  const Tensor y = fused ? linear(in, q, before, cache) : linear_unfused(in, q, before);
  (y * weights).sum().backward();
  std::vector<Tensor> gradients;
  for (const Tensor& tensor : leaves) gradients.push_back(tensor.grad());
  return gradients;
}

// Compares with float64 and with ATen's error in the same precision, for a layer with these parts: the bias,
// and the residual with the scale [70] or [batch, 70].
struct Parts {
  int64_t batch;
  kernels::Activation activation;
  bool bf16, bias, epilogue;
};
void expect_the_gradients(const Parts& with, const Tensor& scale) {
  LinearParameters p = parameters_of(with.activation);
  if (!with.bias || with.activation == kernels::Activation::silu_gate) p.bias = Tensor();
  p.scale = scale;
  const Tensor x = torch::randn({with.batch, 11, 50}),
               residual = with.epilogue ? torch::randn({with.batch, 11, 70}) : Tensor();
  const auto gradients = [&](torch::ScalarType type, bool fused) {
    return gradients_of(p, x, residual, type, with.bf16, fused);
  };
  const auto want = gradients(torch::kFloat64, false), got = gradients(torch::kFloat32, true),
             theirs = gradients(torch::kFloat32, false);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_LT(relative(got[i], want[i]), 2 * relative(theirs[i], want[i]) + 1e-6)
        << i << " batch " << with.batch << " activation " << static_cast<int>(with.activation) << " bf16 "
        << with.bf16 << " bias " << with.bias << " epilogue " << with.epilogue;
}

// For few rows, and for enough to pack weights.
TEST(LinearOp, GradientsAreThoseOfTheComposition) {
  using enum kernels::Activation;
  torch::manual_seed(6);
  const Tensor scale = torch::rand({70}) + 0.5;
  for (const bool bf16 : {false, true})
    for (const bool bias : {true, false})
      for (const bool epilogue : {true, false}) {
        for (const auto activation : {none, gelu, silu_gate, gelu_tanh})
          expect_the_gradients({3, activation, bf16, bias, epilogue}, epilogue ? scale : Tensor());
        expect_the_gradients({100, none, bf16, bias, epilogue}, {});
        for (const int64_t batch : {3, 100})  // a scale per sample
          expect_the_gradients({batch, none, bf16, bias, epilogue}, torch::randn({batch, 70}));
      }
}

TEST(LinearOp, FrozenParametersGetNoGradientAndTheOthersTheirs) {
  const Autocast autocast;
  LinearParameters p = parameters_of(kernels::Activation::none);
  const Tensor x = torch::randn({4, 50}), residual = torch::randn({4, 70});
  LinearCache cache;
  p.bias.requires_grad_(), p.scale.requires_grad_();
  linear(x, p, residual, cache).sum().backward();
  EXPECT_FALSE(p.weight.grad().defined());
  const Tensor want = p.scale.detach() * 4;  // a sum over 4 rows
  EXPECT_LT(relative(p.bias.grad(), want.to(torch::kFloat64)), 1e-6);
  EXPECT_TRUE(p.scale.grad().defined());
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
  LinearParameters steps = p;
  steps.weight_log_step = torch::zeros({1});
  EXPECT_THROW(linear(torch::randn({2, 50}), steps, {}, cache), Error);
  steps.weight_log_step = Tensor(), steps.input_log_step = torch::zeros({50});
  EXPECT_THROW(linear(torch::randn({2, 50}), steps, {}, cache), Error);
}

TEST(LinearOp, TheResultHasTheTypeOfItsResidual) {
  const LinearParameters p = parameters_of(kernels::Activation::gelu);
  const Tensor x = torch::randn({4, 50}), residual = torch::randn({4, 70}).to(torch::kBFloat16);
  LinearCache cache;
  p.weight.requires_grad_();
  EXPECT_EQ(linear(x, p, residual, cache).scalar_type(), torch::kBFloat16);
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(linear(x, p, residual, cache).scalar_type(), torch::kBFloat16);
}

TEST(LinearOp, SecondDerivativesAreRefusedWhereKernelsHaveNone) {
  const Autocast autocast;
  LinearParameters p = parameters_of(kernels::Activation::none);
  const Tensor x = torch::randn({4, 50}).requires_grad_();
  LinearCache cache;
  const Tensor y = linear(x, p, {}, cache).to(torch::kFloat32).square().sum();
  EXPECT_THROW(torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true), Error);
  const InferenceScope composed({.fused = false});
  const Tensor z = linear(x, p, {}, cache).to(torch::kFloat32).square().sum();
  EXPECT_TRUE(torch::autograd::grad({z}, {x}, {}, true, true)[0].requires_grad());
}

// The norm and then the layer, except for the rounding between the two in int8.
TEST(LinearOp, ANormBeforeItIsComputedInTheSamePass) {
  using enum kernels::Activation;
  for (const bool centred : {true, false})
    for (const auto activation : {none, gelu, silu_gate}) {
      LinearParameters p = parameters_of(activation);
      p.scale = Tensor();
      const Tensor x = torch::randn({3, 5, 50}) * 2 + 1;
      const NormParameters before{torch::rand({50}) + 0.5, centred ? torch::randn({50}) : Tensor(), 1e-3,
                                  centred};
      LinearCache cache;
      const auto difference = [&] {
        const torch::NoGradGuard no_grad;
        return relative(linear(x, p, {}, cache, before),
                        linear(norm(x, before), p, {}, cache).to(torch::kFloat64));
      };
      EXPECT_LT(difference(), 1e-6);
      {
        const Autocast autocast;
        EXPECT_LT(difference(), 4e-3);
      }
      {
        const InferenceScope scope({.int8 = true});
        EXPECT_LT(difference(), 0.02);
      }
      // With gradients, these are two operations.
      const auto slope = [&](const auto& layer) {
        const Tensor leaf = x.clone().requires_grad_();
        layer(leaf).square().sum().backward();
        return leaf.grad();
      };
      const Tensor fused = slope([&](const Tensor& in) { return linear(in, p, {}, cache, before); });
      const Tensor apart = slope([&](const Tensor& in) { return linear(norm(in, before), p, {}, cache); });
      EXPECT_TRUE(torch::equal(fused, apart));
    }
  LinearCache cache;
  const torch::NoGradGuard no_grad;
  const LinearParameters p{.weight = torch::randn({70, 50})};
  EXPECT_THROW(linear(torch::randn({2, 50}), p, {}, cache, {.weight = torch::ones({49})}), Error);
  EXPECT_THROW(linear(torch::randn({2, 50}), p, {}, cache, {torch::ones({50}), torch::ones({51})}), Error);
  EXPECT_THROW(norm(torch::randn({2, 50}), {.weight = torch::ones({49})}), Error);
}

TEST(LinearOp, AnotherActivationIsPackedAnew) {
  const torch::NoGradGuard no_grad;
  LinearParameters p = parameters_of(kernels::Activation::none);
  LinearCache cache;
  const Tensor x = torch::randn({4, 50});
  for (const auto activation : {kernels::Activation::none, kernels::Activation::gelu}) {
    p.activation = activation;
    EXPECT_TRUE(torch::allclose(linear(x, p, {}, cache), linear_unfused(x, p, {}), 1e-4, 1e-5));
  }
}

// Enough rows for packed weights in training: the rounding has its gradients there too.
TEST(LinearOp, LearnedStepsHaveGradientsForManyRows) {
  torch::manual_seed(5);
  const Tensor inputs = torch::randn({1100, 9});
  const auto gradients = [&](const auto& layer) {
    LinearParameters p{.weight = torch::linspace(-1, 1, 72).view({8, 9}).requires_grad_()};
    p.weight_log_step = torch::full({8}, 0.01).log().requires_grad_();
    const Tensor x = inputs.clone().requires_grad_();
    layer(x, p).square().sum().backward();
    return std::array{x.grad(), p.weight.grad(), p.weight_log_step.grad()};
  };
  LinearCache cache;
  const auto got =
      gradients([&](const Tensor& x, const LinearParameters& p) { return linear(x, p, {}, cache); });
  const auto want =
      gradients([](const Tensor& x, const LinearParameters& p) { return linear_unfused(x, p, {}); });
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i].defined()) << i;
    EXPECT_TRUE(torch::allclose(got[i], want[i], 1e-4, 1e-4)) << i;
  }
}

TEST(NormOp, IsItsComposition) {
  const Tensor x = torch::randn({4, 7, 37}) * 3 + 1, weight = torch::rand({37}), bias = torch::randn({37});
  const Tensor layer = torch::layer_norm(x, {37}, weight, bias, 1e-6);
  const Tensor rms = norm(x.to(torch::kFloat64), {weight, {}, 1e-6, false}).to(torch::kFloat32);  // composed
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::allclose(norm(x, {weight, bias, 1e-6}), layer, 1e-5, 1e-5));
  EXPECT_TRUE(
      torch::allclose(norm(x.transpose(0, 1), {weight, bias, 1e-6}), layer.transpose(0, 1), 1e-5, 1e-5));
  EXPECT_TRUE(torch::allclose(norm(x, {weight, {}, 1e-6, false}), rms, 1e-5, 1e-5));
  const Autocast autocast;
  EXPECT_EQ(norm(x, {weight, bias, 1e-6}).scalar_type(), torch::kBFloat16);
}

// Gradients of `of` at `leaves` in float64 against differences, for one number in seven of each leaf.
template <class Function>
void expect_slopes(const std::vector<Tensor>& leaves, Function of, const char* what) {
  constexpr double h = 1e-5;
  for (const Tensor& leaf : leaves) leaf.requires_grad_();
  const Tensor y = of();
  const Tensor weights = torch::randn(y.sizes(), torch::kFloat64);
  (y * weights).sum().backward();
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor flat = leaves[i].view(-1), gradient = leaves[i].grad().reshape(-1);
    for (int64_t at = 0; at < flat.numel(); at += 7) {
      const auto moved = [&](double by) {
        flat[at] += by;
        const double loss = (of() * weights).sum().template item<double>();
        flat[at] -= by;
        return loss;
      };
      EXPECT_NEAR(gradient[at].item<double>(), (moved(h) - moved(-h)) / (2 * h), 1e-7)
          << what << ", leaf " << i << ", number " << at;
    }
  }
}

TEST(LinearOp, GradientsInDoubleAreSlopes) {
  using enum kernels::Activation;
  for (const auto activation : {none, gelu, silu_gate}) {
    torch::manual_seed(6);
    const auto draw = [](torch::IntArrayRef sizes) { return torch::randn(sizes, torch::kFloat64); };
    const Tensor x = draw({3, 6}), residual = draw({3, 5});
    LinearParameters p{draw({5, 6}), draw({5}), activation, {}, draw({5})};
    std::vector<Tensor> leaves = {x, residual, p.weight, p.bias, p.scale};
    if (activation == silu_gate) leaves.push_back(p.gate = draw({5, 6}));
    LinearCache cache;
    expect_slopes(
        leaves, [&] { return linear(x, p, residual, cache); }, "linear");
  }
}

TEST(NormOp, GradientsInDoubleAreSlopes) {
  torch::manual_seed(7);
  const Tensor x = torch::randn({4, 9}, torch::kFloat64) * 2 + 1,
               weight = torch::rand({9}, torch::kFloat64) + 0.5, bias = torch::randn({9}, torch::kFloat64);
  expect_slopes(
      {x, weight, bias},
      [&] {
        return norm(x, {weight, bias, 1e-3});
      },
      "layer norm");
  for (const Tensor& leaf : {x, weight}) leaf.mutable_grad() = Tensor();
  expect_slopes(
      {x, weight},
      [&] {
        return norm(x, {weight, {}, 1e-3, false});
      },
      "root mean square norm");
}

// Shared by all samples, and one per sample.
void expect_gradients_of_norms(torch::IntArrayRef sizes) {
  for (const bool centred : {true, false})
    for (const bool bf16 : {true, false}) {
      torch::manual_seed(1);
      const Tensor x = torch::randn({5, 9, 37}) * 3 + 1, weight = torch::rand(sizes) + 0.5,
                   bias = torch::randn(sizes), weights = torch::randn({5, 9, 37});
      const auto gradients = [&](torch::ScalarType type) {
        const auto leaf = [&](const Tensor& t) { return t.to(type, false, true).requires_grad_(); };
        const Tensor in = leaf(x), w = leaf(weight), b = leaf(bias);
        std::optional<Autocast> autocast;
        if (bf16 && type == torch::kFloat32) autocast.emplace();
        const Tensor y = centred ? norm(in, {w, b, 1e-5}) : norm(in, {w, {}, 1e-5, false});
        EXPECT_EQ(y.scalar_type(), bf16 && type == torch::kFloat32 ? torch::kBFloat16 : type);
        (y * weights.to(y.scalar_type())).sum().backward();
        std::vector<Tensor> all = {in.grad(), w.grad()};
        if (centred) all.push_back(b.grad());
        return all;
      };
      const auto want = gradients(torch::kFloat64), got = gradients(torch::kFloat32);
      // In bfloat16, inputs are rounded to 8 bits.
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LT(relative(got[i], want[i]), bf16 ? 1.0 / 128 : 2e-6) << i << " " << centred << bf16;
    }
}
TEST(NormOp, GradientsAreThoseOfTheComposition) { expect_gradients_of_norms({37}); }
TEST(NormOp, GradientsOfNormsOfSamplesAreThoseOfTheComposition) { expect_gradients_of_norms({5, 37}); }

}  // namespace
}  // namespace tessera::ops
