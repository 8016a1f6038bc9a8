#include "ops/mlstm_mixer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.h"
#include "kernels/isa.h"

namespace tessera::ops {
namespace {

struct Case {
  const char* name;
  int64_t batch, rows, columns, inner, heads, kernel;
  bool causal, reverse, biases;
};

MlstmMixerParameters parameters_of(const Case& c, torch::ScalarType dtype,
                                   torch::ScalarType drawn = torch::kFloat32, uint64_t draw = 0) {
  torch::manual_seed(7 + 100 * draw);
  const auto deviation = [](const std::string& name) {
    if (name == "conv_weight") return 0.4;
    if (name == "input_weight" || name == "forget_weight") return 0.1;
    if (name == "input_bias" || name == "forget_bias") return 1.0;
    return name == "skip" || (name.ends_with("_weight") && name != "norm_weight") ? 0.5 : 0.3;
  };
  const kernels::MlstmMixerShape sizes{c.batch, c.rows, c.columns, c.inner, c.heads, c.kernel, c.causal};
  MlstmMixerParameters p;
  kernels::visit_mixer_parameters(
      sizes,
      [&](const std::string& name, bool required, const kernels::ParameterShape& shape, torch::Tensor& to) {
        const bool of_gates = name == "input_bias" || name == "forget_bias";
        if (!required && !c.biases && !of_gates && name != "norm_weight") return;
        // Drawn in the lowest precision, so all precisions get the same numbers.
        const torch::Tensor values = torch::randn(at::IntArrayRef(shape.sizes.data(), shape.rank));
        to = (values * deviation(name)).to(drawn).to(dtype).requires_grad_();
      },
      p);
  return p;
}

std::vector<torch::Tensor> list_of(const MlstmMixerParameters& p) {
  std::vector<torch::Tensor> list;
  kernels::visit_mixer_parameters(
      {},
      [&](const char*, bool, const kernels::ParameterShape&, const torch::Tensor& t) {
        if (t.defined()) list.push_back(t);
      },
      p);
  return list;
}

// Returns the output, the gradient of u and the gradients of the parameters.
std::vector<torch::Tensor> run(const Case& c, bool fused, torch::ScalarType dtype,
                               torch::ScalarType u_dtype = torch::ScalarType::Undefined, uint64_t draw = 0) {
  const bool half = u_dtype == torch::kBFloat16;
  const MlstmMixerParameters p = parameters_of(c, dtype, half ? torch::kBFloat16 : torch::kFloat32, draw);
  torch::manual_seed(8 + 100 * draw);
  torch::Tensor u = torch::randn({c.batch, c.rows * c.columns, 2 * c.inner});
  const torch::Tensor weight = torch::randn({c.batch, c.rows * c.columns, c.inner});
  // bfloat16 inputs are rounded for both sides.
  if (half) u = u.to(torch::kBFloat16);
  u = u.to(u_dtype == torch::ScalarType::Undefined || !fused ? dtype : u_dtype).requires_grad_();
  const MlstmMixerOptions options{
      .heads = c.heads, .rows = c.rows, .columns = c.columns, .reverse = c.reverse};
  EXPECT_TRUE(!fused || mlstm_mixer_fuses(u, p, options)) << c.name;
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

// The fused form's error against float64 is at most three times that of the composition in the same
// precision, by the median over several draws. In single draws, a row with a nearly cancelling sum decides
// either way.
TEST(MlstmMixer, FusedIsAsExactAsTheComposition) {
  constexpr uint64_t kDraws = 9;
  for (const Case& c : kCases) {
    std::vector<std::vector<double>> ratios;
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const auto want = run(c, false, torch::kFloat64, torch::kFloat64, draw),
                 plain = run(c, false, torch::kFloat32, torch::kFloat32, draw),
                 fused = run(c, true, torch::kFloat32, torch::kFloat32, draw);
      const double floor = 1e-7 * largest(want);  // in case the composition is exact by luck
      ratios.resize(want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        const auto error = [&](const torch::Tensor& x) { return (x - want[i]).abs().max().item<double>(); };
        ratios[i].push_back(error(fused[i]) / (error(plain[i]) + floor));
      }
    }
    for (size_t i = 0; i < ratios.size(); ++i) {
      std::sort(ratios[i].begin(), ratios[i].end());
      EXPECT_LE(ratios[i][kDraws / 2], 3) << c.name << ", tensor " << i;
    }
  }
}

// On bfloat16 inputs the fused form rounds at most as much as the composition in bfloat16. Single draws
// differ either way, due to rows with nearly cancelling sums. So medians over several draws are compared, and
// four in five stay below three times as much.
TEST(MlstmMixer, TakesBfloat16InputsWithFloatParameters) {
  constexpr uint64_t kDraws = 15;
  for (const Case& c : kCases) {
    std::vector<std::vector<double>> ratios;
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const auto want = run(c, false, torch::kFloat64, torch::kBFloat16, draw),
                 got = run(c, true, torch::kFloat32, torch::kBFloat16, draw),
                 composed = run(c, false, torch::kBFloat16, torch::kBFloat16, draw);
      ratios.resize(want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        const double ratio =
            (got[i] - want[i]).norm().item<double>() / (composed[i] - want[i]).norm().item<double>();
        ASSERT_TRUE(std::isfinite(ratio)) << c.name << ", tensor " << i << ", draw " << draw;
        ratios[i].push_back(ratio);
      }
    }
    for (size_t i = 0; i < ratios.size(); ++i) {
      std::sort(ratios[i].begin(), ratios[i].end());
      EXPECT_LE(ratios[i][kDraws / 2], 1.3) << c.name << ", tensor " << i;
      EXPECT_LE(ratios[i][kDraws * 4 / 5 - 1], 3) << c.name << ", tensor " << i;
    }
  }
}

// The same without gradients: at most twice the largest error of the composition.
TEST(MlstmMixer, InferenceIsAsExactAsTheCompositionInBfloat16) {
  for (const Case& c : kCases) {
    const auto output = [&](bool fused, torch::ScalarType dtype) {
      const torch::NoGradGuard no_grad;
      const MlstmMixerParameters p = parameters_of(c, dtype, torch::kBFloat16);
      torch::manual_seed(8);
      const torch::Tensor u = torch::randn({c.batch, c.rows * c.columns, 2 * c.inner}).to(torch::kBFloat16);
      const MlstmMixerOptions options{
          .heads = c.heads, .rows = c.rows, .columns = c.columns, .reverse = c.reverse};
      const torch::Tensor y =
          fused ? mlstm_mixer(u, p, options) : mlstm_mixer_unfused(u.to(dtype), p, options);
      return y.to(torch::kFloat64);
    };
    const torch::Tensor want = output(false, torch::kFloat64);
    const auto error = [&](const torch::Tensor& y) { return (y - want).abs().max().item<double>(); };
    EXPECT_LE(error(output(true, torch::kFloat32)), 2 * error(output(false, torch::kBFloat16))) << c.name;
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

TEST(MlstmMixer, GateBiasesMayBeLeftOutAndSizesAreChecked) {
  const torch::NoGradGuard no_grad;
  const Case& c = kCases[0];
  MlstmMixerParameters p = parameters_of(c, torch::kFloat32);
  const torch::Tensor u = torch::randn({c.batch, c.rows * c.columns, 2 * c.inner});
  MlstmMixerOptions options{.heads = c.heads, .rows = c.rows, .columns = c.columns};
  p.input_bias = p.forget_bias = torch::Tensor();
  ASSERT_TRUE(mlstm_mixer_fuses(u, p, options));
  EXPECT_TRUE(torch::allclose(mlstm_mixer(u, p, options), mlstm_mixer_unfused(u, p, options), 1e-4, 1e-4));
  options.heads = 8;
  EXPECT_THROW(mlstm_mixer(u, p, options), Error);
  options.heads = c.heads, p.skip = torch::zeros({c.inner - 1});
  EXPECT_THROW(mlstm_mixer(u, p, options), Error);
}

TEST(MlstmMixer, FallsBackToTheCompositionInDouble) {
  const Case& c = kCases[0];
  const MlstmMixerParameters p = parameters_of(c, torch::kFloat64);
  const torch::Tensor u = torch::randn({2, 16, 128}, torch::kFloat64);
  const MlstmMixerOptions options{.heads = c.heads, .rows = c.rows, .columns = c.columns, .reverse = true};
  EXPECT_FALSE(mlstm_mixer_fuses(u, p, options));
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

TEST(SequenceConv, ToBothSidesSeesItsNeighbours) {
  torch::manual_seed(3);
  const torch::Tensor weight = torch::randn({8, 1, 3}), bias = torch::randn({8});
  const torch::Tensor x = torch::randn({1, 6, 8});
  torch::Tensor changed = x.clone();
  changed.select(1, 3).add_(1);
  const torch::Tensor difference =
      (sequence_conv(changed, weight, bias, 0, 0, false) - sequence_conv(x, weight, bias, 0, 0, false))
          .abs()
          .sum(at::IntArrayRef{0, 2});
  EXPECT_TRUE(torch::equal(difference > 0, torch::tensor({false, false, true, true, true, false})));
  EXPECT_ANY_THROW(sequence_conv(x, torch::randn({8, 1, 4}), bias, 0, 0, false));
}

// Options without a fused form use the composition, also in float32.
TEST(MlstmMixer, OptionsWithoutAFusedFormAreComposed) {
  const Case& c = kCases[0];
  const torch::Tensor u = torch::randn({2, 17, 128});
  const MlstmMixerOptions options{.heads = c.heads, .rows = c.rows, .columns = c.columns};
  const MlstmMixerParameters all = parameters_of(c, torch::kFloat32);
  const auto output = [&](const MlstmMixerParameters& p, const MlstmMixerOptions& with, int64_t tokens = 16) {
    EXPECT_FALSE(mlstm_mixer_fuses(u.slice(1, 0, tokens), p, with));
    return mlstm_mixer(u.slice(1, 0, tokens), p, with);
  };
  const torch::Tensor usual = mlstm_mixer(u.slice(1, 0, 16), all, options);
  MlstmMixerParameters no_skip = all, zero_skip = all, no_conv = all;
  no_skip.skip = no_conv.conv_weight = torch::Tensor();
  zero_skip.skip = torch::zeros({c.inner});
  EXPECT_TRUE(torch::allclose(output(no_skip, options), mlstm_mixer(u.slice(1, 0, 16), zero_skip, options),
                              1e-4, 1e-4));
  EXPECT_FALSE(torch::allclose(output(no_conv, options), usual, 1e-2, 1e-2));
  MlstmMixerOptions middle = options;
  middle.off_grid = {8};
  EXPECT_EQ(output(all, middle, 17).sizes(), (std::vector<int64_t>{2, 17, c.inner}));
}

// The paper's cell (equations 3 to 9) for one head, token by token.
TEST(MlstmMixer, ThePapersCellIsItsEquations) {
  torch::manual_seed(5);
  const auto draw = [](torch::IntArrayRef shape) { return torch::randn(shape, torch::kFloat64) * 0.5; };
  const int64_t inner = 8, tokens = 5;
  MlstmMixerParameters p;
  p.q_weight = draw({2, 4, 4}), p.q_bias = draw({inner});
  p.k_weight = draw({2, 4, 4}), p.k_bias = draw({inner});
  p.v_weight = draw({2, 4, 4}), p.v_bias = draw({inner});
  p.input_weight = draw({1, inner}), p.input_bias = draw({1});
  p.forget_weight = draw({1, inner}), p.forget_bias = draw({1});
  p.norm_weight = torch::zeros({inner}, torch::kFloat64);
  const torch::Tensor u = draw({1, tokens, 2 * inner}), x = u[0].slice(1, 0, inner), z = u[0].slice(1, inner);
  const torch::Tensor a = torch::silu(x);  // no convolution
  const torch::Tensor q = headwise_linear(a, p.q_weight, p.q_bias),
                      v = headwise_linear(x, p.v_weight, p.v_bias);
  const torch::Tensor k =
      headwise_linear(a, p.k_weight, {}) / std::sqrt(static_cast<double>(inner)) + p.k_bias;
  torch::Tensor c = torch::zeros({inner, inner}, torch::kFloat64), n = torch::zeros({inner}, torch::kFloat64);
  std::vector<torch::Tensor> rows;
  for (int64_t t = 0; t < tokens; ++t) {
    const torch::Tensor i = (torch::linear(x[t], p.input_weight, p.input_bias)).exp();
    const torch::Tensor f = (torch::linear(x[t], p.forget_weight, p.forget_bias)).exp();
    c = f * c + i * torch::outer(v[t], k[t]);
    n = f * n + i * k[t];
    const torch::Tensor h = torch::mv(c, q[t]) / torch::clamp_min(torch::dot(n, q[t]).abs(), 1);
    rows.push_back(torch::layer_norm(h, {inner}, {}, {}, 1e-5) * torch::sigmoid(z[t]));
  }
  const torch::Tensor got = mlstm_mixer(u, p, {.heads = 1, .paper_cell = true});
  EXPECT_TRUE(torch::allclose(got[0], torch::stack(rows), 1e-9, 1e-11));
}

// h = matrix v, without later tokens: the layer's skip and gate apply to the matrix product.
TEST(MlstmMixing, IsTheMatrixThatTheCellMultipliesItsValuesBy) {
  for (const bool reverse : {false, true}) {
    const Case c{"mixing", 2, 3, 4, 16, 2, 3, false, reverse, true};
    MlstmMixerParameters p = parameters_of(c, torch::kFloat64);
    const MlstmMixerOptions options{.heads = 2, .rows = 3, .columns = 4, .causal = false, .reverse = reverse};
    const torch::Tensor u = torch::randn({2, 12, 32}, torch::kFloat64);
    const torch::Tensor matrix = mlstm_mixing(u, p, options);
    ASSERT_EQ(matrix.sizes(), (std::vector<int64_t>{2, 2, 12, 12}));
    const torch::Tensor unseen = reverse ? matrix.tril(-1) : matrix.triu(1);
    EXPECT_EQ(unseen.abs().max().item<double>(), 0);
    const torch::Tensor x = u.slice(2, 0, 16), z = u.slice(2, 16);
    const torch::Tensor v = headwise_linear(x, p.v_weight, p.v_bias).view({2, 12, 2, 8}).transpose(1, 2);
    const torch::Tensor h = torch::matmul(matrix, v).transpose(1, 2).reshape({2, 12, 16});
    // Without its skip, the layer is the normed h times its gate.
    p.skip = torch::zeros_like(p.skip);
    const torch::Tensor expected =
        headwise_norm(h, 2, p.norm_weight + 1, p.norm_bias, options.norm_eps) * torch::silu(z);
    EXPECT_TRUE(torch::allclose(mlstm_mixer_unfused(u, p, options), expected, 1e-9, 1e-12));
  }
}

}  // namespace
}  // namespace tessera::ops
