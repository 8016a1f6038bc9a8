#include "ops/attention.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

namespace tessera::ops {
namespace {

struct Case {
  const char* name;
  int64_t batch, heads, queries, keys, dim;
  AttentionOptions options = {};
  std::vector<int64_t> bias = {};
  int64_t pairs = 0;
  bool by_head = false;
  double own_keys = 0;  // keys have their own angles; rotation stretches by this factor
};

const Case kCases[] = {
    {"plain", 2, 3, 17, 17, 16},
    {"cross", 2, 3, 5, 33, 24, {}, {}, 12},
    {"causal, rotated by head", 2, 3, 20, 20, 16, {.causal = true}, {}, 4, true},
    {"keys stand elsewhere", 2, 3, 33, 7, 24, {}, {}, 8, true, 1.25},
    {"published iLLaMA", 2, 2, 33, 33, 32, {.future_weight = 0}, {}, 16},
    {"soft iLLaMA", 2, 2, 33, 33, 32, {.future_weight = 0.6}, {}, 16},
    {"window with cache", 1, 2, 9, 30, 8, {.causal = true, .first_query = 21, .window = 6}},
    {"queries without keys", 1, 2, 5, 3, 8, {.first_query = 3, .window = 4}},
    {"rotated, with cache", 2, 2, 7, 19, 16, {.causal = true, .first_query = 12}, {}, 6},
    {"rotated by head, with cache", 1, 3, 9, 30, 8, {.first_query = 21, .window = 6}, {}, 4, true},
    {"bias over all", 4, 2, 9, 9, 8, {}, {9, 9}},
    {"bias of heads", 4, 2, 9, 9, 8, {}, {2, 9, 9}},
    {"bias of keys", 4, 2, 9, 9, 8, {}, {4, 1, 1, 9}},
    {"bias of windows", 4, 2, 9, 9, 8, {.causal = true}, {2, 2, 9, 9}},
    {"bias of windows, heads share", 4, 2, 9, 9, 8, {}, {2, 1, 9, 9}},
};

// Output, dq, dk, dv, dbias, in double; drawn in float32 for every precision.
std::vector<torch::Tensor> run(const Case& c, bool fused, torch::ScalarType dtype, bool packed = false) {
  torch::manual_seed(5);
  AttentionOptions options = c.options;
  const auto draw = [&](torch::IntArrayRef sizes) {
    return torch::randn(sizes).to(torch::kBFloat16).to(dtype).requires_grad_();
  };
  torch::Tensor q = draw({c.batch, c.heads, c.queries, c.dim}), k = draw({c.batch, c.heads, c.keys, c.dim}),
                v = draw({c.batch, c.heads, c.keys, c.dim});
  if (!c.bias.empty()) options.bias = draw(c.bias);
  if (c.pairs) {
    const auto angles = [&](int64_t tokens) {
      return torch::randn(c.by_head ? std::vector<int64_t>{c.heads, tokens, c.pairs}
                                    : std::vector<int64_t>{tokens, c.pairs})
          .to(torch::kFloat64);
    };
    const bool own = c.own_keys > 0;
    const double length = own ? c.own_keys : 1;
    const int64_t queries = c.options.first_query + c.queries;
    const torch::Tensor of_queries = angles(own ? queries : std::max(queries, c.keys));
    options.cos = of_queries.cos() * length, options.sin = of_queries.sin() * length;
    if (own) {
      const torch::Tensor of_keys = angles(c.keys);
      options.key_cos = of_keys.cos() * length, options.key_sin = of_keys.sin() * length;
    }
  }
  const torch::Tensor weight = torch::randn(q.sizes()).to(dtype);
  torch::Tensor y;
  if (packed)
    y = attention_packed(torch::stack({q, k, v}, 2).permute({0, 3, 2, 1, 4}), options)
            .unflatten(2, {c.heads, c.dim})
            .transpose(1, 2);
  else
    y = fused ? attention(q, k, v, options) : attention_unfused(q, k, v, options);
  EXPECT_EQ(y.scalar_type(), dtype) << c.name;
  (y * weight).sum().backward();
  std::vector<torch::Tensor> results{y.detach(), q.grad(), k.grad(), v.grad()};
  if (options.bias.defined()) results.push_back(options.bias.grad());
  for (torch::Tensor& result : results) result = result.to(torch::kFloat64);
  return results;
}

double error(const torch::Tensor& got, const torch::Tensor& want) {
  return (got - want).abs().max().item<double>();
}

TEST(Attention, FusedIsAsExactAsTheComposition) {
  for (const Case& c : kCases)
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
      const auto want = run(c, false, torch::kFloat64), plain = run(c, false, dtype),
                 got = run(c, true, dtype);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(got[i].sizes(), want[i].sizes()) << c.name << " result " << i;
        // Twice the composition's error, plus one rounding in case that error was small by luck.
        const double rounding =
            (dtype == torch::kFloat32 ? 6e-7 : 0x1p-8) * want[i].abs().max().item<double>();
        EXPECT_LE(error(got[i], want[i]), 2 * error(plain[i], want[i]) + rounding)
            << c.name << " " << dtype << " result " << i;
      }
    }
}

TEST(Attention, PackedIsTheSameNumbers) {
  for (const Case& c : kCases) {
    if (c.queries != c.keys) continue;
    const auto want = run(c, true, torch::kFloat32), got = run(c, true, torch::kFloat32, true);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(torch::equal(got[i], want[i])) << c.name << " " << i;
    // In double, both are the composition.
    const auto doubles = run(c, false, torch::kFloat64), packed = run(c, true, torch::kFloat64, true);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_LE(error(packed[i], doubles[i]), 1e-12) << c.name << " " << i;
  }
}

// Angles [tokens, pairs] for a sequence, for a grid 5 wide (pairs alternate column and row), and per head.
std::vector<torch::Tensor> tables_of_angles(int64_t tokens, int64_t heads, int64_t pairs) {
  const auto integers = torch::arange(tokens, torch::kFloat64);
  const torch::Tensor frequency = torch::pow(100.0, -torch::arange(pairs, torch::kFloat64) / pairs);
  const torch::Tensor line = torch::outer(integers, frequency);
  const torch::Tensor row = torch::floor(integers / 5), column = integers - 5 * row;
  const torch::Tensor half = frequency.slice(0, 0, pairs, 2);
  const torch::Tensor grid =
      torch::stack({torch::outer(column, half), torch::outer(row, half)}, -1).flatten(1);
  const torch::Tensor by_head = line * torch::arange(1, heads + 1, torch::kFloat64).view({-1, 1, 1});
  return {{}, line, grid, by_head};
}

TEST(Attention, StepsThroughACacheAreTheWholeSequence) {
  constexpr int64_t kTokens = 37, kHeads = 3, kDim = 16, kPairs = 6;
  torch::manual_seed(7);
  const auto draw = [] { return torch::randn({2, kHeads, kTokens, kDim}); };
  const torch::Tensor q = draw(), k = draw(), v = draw();
  for (const torch::Tensor& angles : tables_of_angles(kTokens, kHeads, kPairs))
    for (const int64_t window : {0, 9})
      for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {  // the kernel, and the composition
        AttentionOptions options{.causal = true, .window = window};
        if (angles.defined()) options.cos = angles.cos(), options.sin = angles.sin();
        const torch::Tensor whole = attention(q.to(dtype), k.to(dtype), v.to(dtype), options);
        std::vector<torch::Tensor> pieces;
        for (const int64_t step : {1, 1, 4, 13, 1, 17}) {
          const int64_t end = options.first_query + step;
          const auto cached = [&](const torch::Tensor& x) { return x.slice(2, 0, end).to(dtype); };
          pieces.push_back(
              attention(q.slice(2, options.first_query, end).to(dtype), cached(k), cached(v), options));
          options.first_query = end;
        }
        ASSERT_EQ(options.first_query, kTokens);
        const double allowed = (dtype == torch::kFloat32 ? 4e-6 : 1e-14) * whole.abs().max().item<double>();
        EXPECT_LE(error(torch::cat(pieces, 2), whole), allowed)
            << (angles.defined() ? angles.sizes() : c10::IntArrayRef{}) << " window " << window << " "
            << dtype;
      }
}

TEST(Attention, AutocastTakesItsPrecisionAndGivesGradientsBack) {
  const torch::Tensor qkv = torch::randn({2, 9, 3, 2, 8}).requires_grad_();
  at::autocast::set_autocast_dtype(torch::kCPU, torch::kBFloat16);
  at::autocast::set_autocast_enabled(torch::kCPU, true);
  const torch::Tensor y = attention_packed(qkv);
  at::autocast::set_autocast_enabled(torch::kCPU, false);
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(qkv.grad().scalar_type(), torch::kFloat32);
  EXPECT_LE(error(y.to(torch::kFloat32), attention_packed(qkv)), 0.03);
}

TEST(Attention, LearnedAnglesGetTheirGradient) {
  const torch::Tensor q = torch::randn({1, 2, 5, 8}), angles = torch::randn({5, 4}).requires_grad_();
  attention(q, q, q, {.cos = angles.cos(), .sin = angles.sin()}).square().sum().backward();
  ASSERT_TRUE(angles.grad().defined());
  EXPECT_GT(angles.grad().abs().max().item<double>(), 0);
}

// The backward pass recomputes the weights.
TEST(Attention, ABiasThatWasChangedBeforeTheBackwardPassIsRefused) {
  const torch::Tensor q = torch::randn({1, 2, 5, 8}).requires_grad_(), bias = torch::randn({1, 1, 5, 5});
  const torch::Tensor y = attention(q, q, q, {.bias = bias});
  bias.mul_(2);
  EXPECT_ANY_THROW(y.sum().backward());
}

TEST(Attention, EmptyTensorsAndWrongShapes) {
  const torch::Tensor none = torch::zeros({0, 2, 5, 8}, torch::requires_grad());
  const torch::Tensor y = attention(none, none, none);
  EXPECT_EQ(y.sizes(), none.sizes());
  y.sum().backward();
  EXPECT_EQ(none.grad().sizes(), none.sizes());
  const torch::Tensor q = torch::randn({1, 2, 5, 8}), k = torch::randn({1, 2, 6, 8});
  EXPECT_ANY_THROW(attention(q, k, q));
  EXPECT_ANY_THROW(attention(q, q, q, {.bias = torch::zeros({4, 5})}));
  EXPECT_ANY_THROW(attention(q, q, q, {.cos = torch::ones({4, 4}), .sin = torch::ones({4, 4})}));
  const torch::Tensor angles = torch::ones({5, 4});
  EXPECT_ANY_THROW(attention(q, q, q, {.cos = angles, .sin = angles, .first_query = 1}));
  EXPECT_ANY_THROW(attention_unfused(q, q, q, {.cos = angles, .sin = angles, .first_query = 1}));
  EXPECT_ANY_THROW(attention(q, q, q, {.first_query = -1}));
  const torch::Tensor four = torch::ones({4, 4});
  EXPECT_ANY_THROW(attention(q, q, q, {.cos = angles, .sin = angles, .key_cos = four, .key_sin = four}));
  EXPECT_ANY_THROW(attention_packed(torch::zeros({1, 5, 2, 2, 8})));
}

}  // namespace
}  // namespace tessera::ops
