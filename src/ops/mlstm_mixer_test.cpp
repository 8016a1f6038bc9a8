#include "ops/mlstm_mixer.h"

#include <gtest/gtest.h>

#include "kernels/isa.h"
#include "ops/mlstm.h"

namespace tessera::ops {
namespace {

struct Case {
  const char* name;
  int64_t batch, rows, columns, inner, heads, kernel;
  bool causal, reverse, biases;
};

MlstmMixerParameters parameters_of(const Case& c, torch::ScalarType dtype) {
  torch::manual_seed(7);
  const auto make = [&](torch::IntArrayRef shape, double deviation) {
    // Drawn in float32, so that both precisions see the same numbers.
    return (torch::randn(shape) * deviation).to(dtype).requires_grad_();
  };
  const auto bias = [&](int64_t size) { return c.biases ? make({size}, 0.3) : torch::Tensor(); };
  MlstmMixerParameters p;
  p.conv_weight = c.causal ? make({c.inner, 1, c.kernel}, 0.4) : make({c.inner, 1, c.kernel, c.kernel}, 0.4);
  p.q_weight = make({c.inner / 4, 4, 4}, 0.5), p.k_weight = make({c.inner / 4, 4, 4}, 0.5);
  p.v_weight = make({c.inner / 4, 4, 4}, 0.5);
  p.input_weight = make({c.heads, 3 * c.inner}, 0.1), p.forget_weight = make({c.heads, 3 * c.inner}, 0.1);
  p.input_bias = make({c.heads}, 1), p.forget_bias = make({c.heads}, 1);
  p.norm_weight = make({c.inner}, 0.3), p.skip = make({c.inner}, 0.5);
  p.conv_bias = bias(c.inner), p.q_bias = bias(c.inner), p.k_bias = bias(c.inner), p.v_bias = bias(c.inner);
  p.norm_bias = bias(c.inner);
  return p;
}

std::vector<torch::Tensor> list_of(const MlstmMixerParameters& p) {
  std::vector<torch::Tensor> list;
  for (const torch::Tensor& t :
       {p.conv_weight, p.conv_bias, p.q_weight, p.q_bias, p.k_weight, p.k_bias, p.v_weight, p.v_bias,
        p.input_weight, p.input_bias, p.forget_weight, p.forget_bias, p.norm_weight, p.norm_bias, p.skip})
    if (t.defined()) list.push_back(t);
  return list;
}

// Output, gradient of u, gradients of the parameters.
std::vector<torch::Tensor> run(const Case& c, bool fused, torch::ScalarType dtype,
                               torch::ScalarType u_dtype = torch::ScalarType::Undefined) {
  const MlstmMixerParameters p = parameters_of(c, dtype);
  torch::manual_seed(8);
  torch::Tensor u = torch::randn({c.batch, c.rows * c.columns, 2 * c.inner});
  const torch::Tensor weight = torch::randn({c.batch, c.rows * c.columns, c.inner});
  // bfloat16 inputs are rounded for both sides.
  if (u_dtype == torch::kBFloat16) u = u.to(torch::kBFloat16);
  u = u.to(u_dtype == torch::ScalarType::Undefined || !fused ? dtype : u_dtype).requires_grad_();
  const MlstmMixerOptions options{
      .heads = c.heads, .rows = c.rows, .columns = c.columns, .reverse = c.reverse};
  EXPECT_TRUE(!fused || mlstm_mixer_fuses(u, p)) << c.name;
  const torch::Tensor y = fused ? mlstm_mixer(u, p, options) : mlstm_mixer_unfused(u, p, options);
  EXPECT_EQ(y.scalar_type(), u.scalar_type());
  (y * weight.to(dtype)).sum().backward();
  std::vector<torch::Tensor> results{y.detach(), u.grad()};
  for (const torch::Tensor& parameter : list_of(p)) results.push_back(parameter.grad());
  for (torch::Tensor& result : results) result = result.to(torch::kFloat64);
  return results;
}

const Case kCases[] = {
    {"square", 3, 4, 4, 64, 4, 3, false, false, true},
    {"reversed, wide, no biases", 2, 3, 5, 96, 2, 3, false, true, false},
    {"causal", 2, 4, 4, 64, 4, 4, true, false, true},
    {"causal, reversed", 2, 1, 7, 32, 1, 3, true, true, true},
    {"side 5", 1, 6, 5, 48, 3, 5, false, true, true},
    {"20 channels a head", 2, 3, 3, 40, 2, 3, false, true, true},
};

double largest(const std::vector<torch::Tensor>& tensors) {
  double most = 0;
  for (size_t i = 1; i < tensors.size(); ++i) most = std::max(most, tensors[i].abs().max().item<double>());
  return most;
}

// Against float64, the fused form errs at most three times as much as the composition in the same precision.
TEST(MlstmMixer, FusedIsAsExactAsTheComposition) {
  for (const Case& c : kCases) {
    const auto want = run(c, false, torch::kFloat64), plain = run(c, false, torch::kFloat32),
               fused = run(c, true, torch::kFloat32);
    const double floor = 1e-7 * largest(want);  // where the composition happens to be exact
    for (size_t i = 0; i < want.size(); ++i) {
      const double allowed = 3 * (plain[i] - want[i]).abs().max().item<double>() + floor;
      EXPECT_LE((fused[i] - want[i]).abs().max().item<double>(), allowed) << c.name << ", tensor " << i;
    }
  }
}

TEST(MlstmMixer, TakesBfloat16InputsWithFloatParameters) {
  for (const Case& c : kCases) {
    const auto want = run(c, false, torch::kFloat64, torch::kBFloat16),
               got = run(c, true, torch::kFloat32, torch::kBFloat16);
    for (size_t i = 0; i < want.size(); ++i) {
      // One rounding of the output, or of its gradient on the way back.
      const double allowed = 8e-3 * want[i].abs().max().item<double>() + 1e-4 * largest(want);
      EXPECT_LE((got[i] - want[i]).abs().max().item<double>(), allowed) << c.name << ", tensor " << i;
    }
  }
}

TEST(MlstmMixer, KeepsNothingWithoutGradients) {
  const Case& c = kCases[0];
  const MlstmMixerParameters p = parameters_of(c, torch::kFloat32);
  const torch::Tensor u = torch::randn({c.batch, c.rows * c.columns, 2 * c.inner});
  const MlstmMixerOptions options{.heads = c.heads, .rows = c.rows, .columns = c.columns};
  const torch::Tensor with = mlstm_mixer(u, p, options);
  const torch::NoGradGuard no_grad;
  const torch::Tensor without = mlstm_mixer(u, p, options);
  EXPECT_TRUE(with.requires_grad());
  EXPECT_FALSE(without.requires_grad());
  EXPECT_TRUE(torch::equal(with, without));
}

TEST(MlstmMixer, FallsBackToTheCompositionInDouble) {
  const Case& c = kCases[0];
  const MlstmMixerParameters p = parameters_of(c, torch::kFloat64);
  const torch::Tensor u = torch::randn({2, 16, 128}, torch::kFloat64);
  const MlstmMixerOptions options{.heads = c.heads, .rows = c.rows, .columns = c.columns, .reverse = true};
  EXPECT_FALSE(mlstm_mixer_fuses(u, p));
  EXPECT_TRUE(torch::equal(mlstm_mixer(u, p, options), mlstm_mixer_unfused(u, p, options)));
}

TEST(SequenceConv, CausalSeesNothingLater) {
  torch::manual_seed(3);
  const torch::Tensor weight = torch::randn({8, 1, 4}), bias = torch::randn({8});
  torch::Tensor x = torch::randn({1, 6, 8});
  const torch::Tensor before = sequence_conv(x, weight, bias, 0, 0);
  x.select(1, 4).add_(1);
  const torch::Tensor after = sequence_conv(x, weight, bias, 0, 0);
  EXPECT_TRUE(torch::equal(before.slice(1, 0, 4), after.slice(1, 0, 4)));
  EXPECT_FALSE(torch::equal(before.slice(1, 4), after.slice(1, 4)));
}

TEST(MlstmParallel, LaterTokensChangeNothingEarlier) {
  torch::manual_seed(4);
  torch::Tensor q = torch::randn({1, 2, 6, 8}), k = torch::randn({1, 2, 6, 8}),
                v = torch::randn({1, 2, 6, 8});
  const torch::Tensor i = torch::randn({1, 2, 6}), f = torch::randn({1, 2, 6});
  const torch::Tensor before = mlstm_parallel(q, k, v, i, f);
  for (torch::Tensor* t : {&q, &k, &v}) t->select(2, 4).add_(1);
  const torch::Tensor after = mlstm_parallel(q, k, v, i, f);
  EXPECT_TRUE(torch::allclose(before.slice(2, 0, 4), after.slice(2, 0, 4), 0, 1e-6));
  EXPECT_FALSE(torch::allclose(before.slice(2, 4), after.slice(2, 4), 0, 1e-3));
}

}  // namespace
}  // namespace tessera::ops
