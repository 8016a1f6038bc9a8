#include "nn/quantised_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::nn {
namespace {

using torch::Tensor;

constexpr int64_t kHeads = 3, kHeadWidth = 4, kWidth = kHeads * kHeadWidth;

Attention random_attention(int64_t seed) {
  torch::manual_seed(seed);
  Attention attention(kWidth, kHeads);
  attention->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : attention->parameters()) parameter.normal_();
  return attention;
}

// Returns the part of the attention on 2^bits levels, in float64, with a large random zero point.
AttentionRoundingImpl& quantised(Attention& attention, int64_t bits) {
  attention->quantise(bits);
  attention->to(torch::kFloat64);
  return *rounding_of(*attention);
}

double number(const Tensor& x, int64_t i) { return x.flatten()[i].item<double>(); }

// Rounds one number by the definition.
double rounded(double x, double step, double zero_point, bool with_sign, int64_t bits) {
  const double z = std::nearbyint(zero_point), low = with_sign ? -std::exp2(bits - 1) : 0,
               high = with_sign ? std::exp2(bits - 1) - 1 : std::exp2(bits) - 1;
  return step * (std::nearbyint(std::clamp(x / step + z, low, high)) - z);
}

Tensor layer_normed(const Tensor& x) {
  const Tensor centred = x - x.mean(-1, true);
  return centred / (centred.square().mean(-1, true) + 1e-5).sqrt();
}

// The equation in double, one number at a time, over odd sizes and widths, causal or with iLLaMA's mask.
TEST(QuantisedAttention, IsItsDefinition) {
  for (const int64_t bits : {2, 3, 8})
    for (const int64_t tokens : {1, 5, 17})
      for (const double future : {1.0, 0.0}) {
        Attention attention = random_attention(bits * 100 + tokens);
        AttentionRoundingImpl& rounding = quantised(attention, bits);
        const Tensor q = torch::randn({2, kHeads, tokens, kHeadWidth}, torch::kFloat64),
                     k = torch::randn_like(q), v = torch::randn_like(q);
        const AttentionExtras extras{.causal = future == 1 && tokens == 5, .future_weight = future};
        rounding.forward(q, k, v, extras);  // sets the step sizes
        auto named = rounding.named_parameters();
        for (const char* name : {"q", "k", "v", "weights"}) {
          const torch::NoGradGuard no_grad;
          named[std::string(name) + "_zero_point"].uniform_(-1.4, 1.4);
        }
        const Tensor got = rounding.forward(q, k, v, extras);
        const auto buffers = rounding.named_buffers();
        const auto on_levels = [&](const Tensor& x, const std::string& name) {
          Tensor out = torch::empty_like(x);
          const bool with_sign = number(buffers[name + "_signed"], 0) != 0;
          for (int64_t h = 0; h < kHeads; ++h) {
            const double step = std::exp(number(named[name + "_log_step"], h)),
                         zero = number(named[name + "_zero_point"], h);
            const Tensor from = x.select(1, h).contiguous();
            Tensor to = torch::empty_like(from);
            for (int64_t i = 0; i < from.numel(); ++i)
              to.view(-1)[i] = rounded(number(from, i), step, zero, with_sign, bits);
            out.select(1, h).copy_(to);
          }
          return out;
        };
        const torch::NoGradGuard no_grad;
        const Tensor rq = on_levels(layer_normed(q), "q"), rk = on_levels(layer_normed(k), "k");
        Tensor scores = rq.matmul(rk.transpose(2, 3)) / std::sqrt(kHeadWidth);
        const Tensor earlier = torch::ones({tokens, tokens}, torch::kBool).tril();
        if (extras.causal) scores = scores.masked_fill(~earlier, -INFINITY);
        Tensor weights = scores.softmax(-1);
        if (future == 0) weights = weights * earlier;
        const Tensor want = on_levels(weights, "weights").matmul(on_levels(v, "v"));
        EXPECT_LT((got - want).abs().max().item<double>(), 1e-9) << bits << " bits, " << tokens << " tokens";
      }
}

// No head has more than 2^bits different numbers, and probabilities use levels from 0 on.
TEST(QuantisedAttention, BitsAreLevelsAndProbabilitiesHaveNoSign) {
  Attention attention = random_attention(1);
  AttentionRoundingImpl& rounding = quantised(attention, 3);
  Taps taps;
  attention->forward(torch::randn({4, 21, kWidth}, torch::kFloat64), {.taps = &taps, .name = "a"});
  const Tensor weights = taps.kept.at("a.attention");
  for (int64_t h = 0; h < kHeads; ++h) {
    const Tensor head = weights.select(1, h).contiguous();
    std::set<double> levels(head.data_ptr<double>(), head.data_ptr<double>() + head.numel());
    EXPECT_LE(levels.size(), 8U);
    EXPECT_GT(levels.size(), 3U);
    EXPECT_EQ(*levels.begin(), 0);
  }
  const auto buffers = rounding.named_buffers();
  EXPECT_EQ(number(buffers["weights_signed"], 0), 0);
  for (const char* name : {"q_signed", "k_signed", "v_signed"}) EXPECT_EQ(number(buffers[name], 0), 1);
}

// With more and more levels the rounding vanishes, and attention of normed q and k remains.
TEST(QuantisedAttention, ManyLevelsAreTheAttentionItself) {
  Attention attention = random_attention(2);
  const Tensor q = torch::randn({2, kHeads, 9, kHeadWidth}, torch::kFloat64), k = torch::randn_like(q),
               v = torch::randn_like(q);
  const Tensor exact = attend(layer_normed(q), layer_normed(k), v);
  AttentionRoundingImpl& rounding = quantised(attention, 16);
  EXPECT_LT((rounding.forward(q, k, v, {}) - exact).abs().max().item<double>(), 0.02);
}

TEST(QuantisedAttention, EveryPartLearns) {
  Attention attention = random_attention(3);
  AttentionRoundingImpl& rounding = quantised(attention, 2);
  const Tensor x = torch::randn({3, 11, kWidth}, torch::kFloat64);
  attention->forward(x);
  {
    const torch::NoGradGuard no_grad;  // so narrow that some numbers are out of range, from which the zero
                                       // points learn
    for (auto& [name, parameter] : rounding.named_parameters().pairs())
      if (name.ends_with("_log_step")) parameter.sub_(1);
  }
  attention->forward(x).square().sum().backward();
  for (const auto& parameter : attention->named_parameters()) {
    ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
    EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
    EXPECT_GT(parameter.value().grad().abs().max().item<double>(), 0) << parameter.key();
  }
}

TEST(QuantisedAttention, ReadsWholeSequencesOnly) {
  Attention attention = random_attention(4);
  attention->quantise(8);
  EXPECT_THROW(attention->project(torch::randn({1, 1, kWidth}, torch::kFloat64)), Error);
}

}  // namespace
}  // namespace tessera::nn
