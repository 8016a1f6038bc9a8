#include "nn/attention_scores.h"

#include <gtest/gtest.h>

#include "nn/attention.h"

namespace tessera::nn {
namespace {

using torch::Tensor;

Tensor random(torch::IntArrayRef shape) { return torch::randn(shape, torch::kFloat64); }

template <class Layer>
Layer lively(Layer layer) {
  layer->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : layer->parameters()) parameter.normal_();
  return layer;
}

// Each score by its formula, for one query and one key at a time.
TEST(AttentionScores, AreTheirFormulas) {
  torch::manual_seed(1);
  const Tensor q = random({2, 3, 5}), k = random({2, 4, 7});
  const auto additive = lively(AdditiveScores(5, 7, 6));
  const auto general = lively(GeneralScores(5, 7));
  const auto a = additive->named_parameters(), g = general->named_parameters();
  const Tensor sums = additive->forward(q, k), products = general->forward(q, k);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 4; ++j) {
        const Tensor hidden = a["W.weight"].mv(q[b][i]) + a["U.weight"].mv(k[b][j]) + a["U.bias"];
        EXPECT_NEAR(sums[b][i][j].item<double>(), a["v.weight"][0].dot(hidden.tanh()).item<double>(), 1e-12);
        EXPECT_NEAR(products[b][i][j].item<double>(), g["W.weight"].mv(q[b][i]).dot(k[b][j]).item<double>(),
                    1e-12);
      }
  EXPECT_ANY_THROW(dot_scores(q, k));
}

TEST(AttentionScores, KeysBeyondALengthAreNotRead) {
  torch::manual_seed(2);
  const Tensor q = random({3, 2, 4}), k = random({3, 5, 4}), v = random({3, 5, 6});
  const Tensor lengths = torch::tensor({5, 2, 1}, torch::kInt64), seen = keys_within(lengths, 5);
  EXPECT_TRUE(torch::equal(seen.sum(1), lengths));
  const Attended all = read_by_scores(dot_scores(q, k), v, seen);
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t length = lengths[b].item<int64_t>();
    const auto own = [&](const Tensor& x) { return x.slice(0, b, b + 1).slice(1, 0, length); };
    const Attended alone = read_by_scores(dot_scores(q.slice(0, b, b + 1), own(k)), own(v));
    EXPECT_TRUE(torch::allclose(all.context[b], alone.context[0]));
    EXPECT_TRUE(torch::allclose(all.weights[b].slice(1, 0, length), alone.weights[0]));
    EXPECT_EQ(all.weights[b].slice(1, length).abs().sum().item<double>(), 0);
  }
  EXPECT_ANY_THROW(keys_within(lengths.to(torch::kFloat64), 5));
  EXPECT_ANY_THROW(read_by_scores(dot_scores(q, k), v.slice(1, 1), seen));
}

TEST(AttentionScores, AQueryWithoutKeysReadsNothing) {
  const Tensor scores = torch::randn({1, 2, 3}).requires_grad_();
  const Tensor seen = torch::tensor({1, 0, 1, 0, 0, 0}, torch::kInt64).view({1, 2, 3}).to(torch::kBool);
  const Attended attended = read_by_scores(scores, torch::randn({1, 3, 4}), seen);
  EXPECT_EQ(attended.weights[0][1].abs().sum().item<float>(), 0);
  EXPECT_EQ(attended.context[0][1].abs().sum().item<float>(), 0);
  EXPECT_NEAR(attended.weights[0][0].sum().item<float>(), 1, 1e-6);
  attended.context.square().sum().backward();
  EXPECT_TRUE(scores.grad().isfinite().all().item<bool>());
}

// Dot products divided by the root of the width are attention with one head.
TEST(AttentionScores, ScaledDotProductsAreAttention) {
  torch::manual_seed(3);
  const Tensor q = random({2, 3, 4}), k = random({2, 5, 4}), v = random({2, 5, 4});
  const Tensor one_head = attend(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)).squeeze(1);
  EXPECT_TRUE(torch::allclose(read_by_scores(dot_scores(q, k) / 2, v).context, one_head));
}

}  // namespace
}  // namespace tessera::nn
