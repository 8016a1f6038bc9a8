// The fused step against its composition, on views of a larger cache.
#include "ops/cached_attention.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/attention.h"
#include "ops/gpu_testing.h"
#include "ops/inference.h"

namespace tessera::ops {
namespace {

TEST(CachedAttentionStep, FusedIsTheComposition) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16})
    for (const bool all : {false, true}) {
      const auto draw = [&](std::vector<int64_t> shape) { return torch::randn(shape).to(type); };
      const torch::Tensor q = draw({2, 6, 1, 20}), k = draw({2, 1, 2, 20}).transpose(1, 2),
                          v = draw({2, 2, 1, 20});
      const torch::Tensor keys = draw({2, 2, 16, 20}), values = draw({2, 2, 16, 20});
      CachedAttentionOptions options;
      if (all) {
        const torch::Tensor angles = torch::randn({2, 10});
        options.cos = angles.cos(), options.sin = angles.sin();
        options.slopes = torch::rand({6});
        options.seen = torch::rand({2, 11}) > 0.3;
        options.window = 9;
      }
      const auto run = [&](bool fused) {
        const InferenceScope scope({.fused = fused});
        const torch::Tensor own_keys = keys.clone(), own_values = values.clone();
        const torch::Tensor out =
            cached_attention(q, k, v, own_keys.slice(2, 0, 11), own_values.slice(2, 0, 11), options);
        return std::vector{out, own_keys, own_values};
      };
      const auto want = run(false), got = run(true);
      // The composition rounds scores and weights to bfloat16 too.
      const double tolerance = type == torch::kFloat32 ? 1e-5 : 0.03;
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LT((want[i] - got[i]).abs().max().item<double>(), tolerance) << i << " " << all;
    }
}

// A cache with more room than tokens, whose number is in memory: as the cache cut off after the new token.
TEST(CachedAttentionStep, TheNumberOfTokensMayBeInMemory) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(4);
  constexpr int64_t kBefore = 10, kRoom = 16;
  for (const torch::ScalarType type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16})
    for (const bool all : {false, true}) {
      const auto draw = [&](std::vector<int64_t> shape) { return torch::randn(shape).to(type); };
      const torch::Tensor q = draw({2, 6, 1, 24}), k = draw({2, 1, 2, 24}).transpose(1, 2),
                          v = draw({2, 2, 1, 24});
      const torch::Tensor keys = draw({2, 2, kRoom, 24}), values = draw({2, 2, kRoom, 24});
      for (const torch::Tensor* x : {&keys, &values}) x->slice(2, kBefore + 1).fill_(NAN);
      CachedAttentionOptions options;
      if (all) {
        const torch::Tensor angles = torch::randn({2, 12});
        options = {.cos = angles.cos(), .sin = angles.sin(), .slopes = torch::rand({6}), .window = 9};
        options.seen = torch::rand({2, kRoom}) > 0.3;
      }
      const auto run = [&](bool fused, bool in_memory) {
        const InferenceScope scope({.fused = fused});
        const torch::Tensor own_keys = keys.clone(), own_values = values.clone();
        const int64_t count = in_memory ? kRoom : kBefore + 1;
        CachedAttentionOptions own = options;
        if (in_memory) own.before = torch::full({1}, kBefore, torch::kInt64);
        if (all) own.seen = options.seen.slice(1, 0, count);
        const torch::Tensor out =
            cached_attention(q, k, v, own_keys.slice(2, 0, count), own_values.slice(2, 0, count), own);
        return std::vector{out.contiguous(), own_keys.slice(2, 0, kBefore + 1),
                           own_values.slice(2, 0, kBefore + 1)};
      };
      const std::vector<torch::Tensor> want = run(false, false);
      const double tolerance = type == torch::kBFloat16 ? 0.02 : type == torch::kFloat32 ? 1e-5 : 1e-12;
      expect_close(run(false, true), want, tolerance);
      expect_close(run(true, true), want, tolerance);
      if (type != torch::kBFloat16) continue;
      const Emulated emulated;
      const Runs runs("cached attention");
      expect_close(run(true, true), want, tolerance);
      EXPECT_EQ(runs.names(), std::vector<std::string>{"cached attention (chunks64)"});
    }
}

TEST(CachedAttentionStep, RefusesMoreTokensThanRoom) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor q = torch::zeros({1, 2, 1, 8}), k = torch::zeros({1, 2, 1, 8}),
                      cache = torch::zeros({1, 2, 5, 8});
  const auto step = [&](const torch::Tensor& before) {
    return cached_attention(q, k, k, cache, cache, {.before = before});
  };
  EXPECT_NO_THROW(step(torch::full({1}, 4, torch::kInt64)));
  EXPECT_THROW(step(torch::full({1}, 5, torch::kInt64)), Error);
  EXPECT_THROW(step(torch::full({1}, -1, torch::kInt64)), Error);
  EXPECT_THROW(step(torch::full({1}, 4, torch::kInt32)), Error);
  EXPECT_THROW(step(torch::zeros({2}, torch::kInt64)), Error);
}

TEST(RotateHalves, IsTheRotationOfOtherPairs) {
  const torch::Tensor x = torch::randn({2, 3, 5, 8}, torch::kFloat64),
                      angles = torch::randn({5, 4}, torch::kFloat64);
  const torch::Tensor cos = angles.cos(), sin = angles.sin(), order = torch::tensor({0, 4, 1, 5, 2, 6, 3, 7});
  EXPECT_TRUE(torch::allclose(rotate_halves(x, cos, sin).index_select(3, order),
                              rotate_pairs(x.index_select(3, order), cos, sin)));
}

TEST(CachedAttentionStep, RefusesShapesThatDoNotFit) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor q = torch::zeros({1, 4, 1, 8}), k = torch::zeros({1, 2, 1, 8}),
                      cache = torch::zeros({1, 2, 5, 8});
  EXPECT_THROW(cached_attention(torch::zeros({1, 3, 1, 8}), k, k, cache, cache), Error);
  EXPECT_THROW(cached_attention(q, torch::zeros({1, 2, 2, 8}), k, cache, cache), Error);
  EXPECT_THROW(cached_attention(q, k.squeeze(2), k.squeeze(2), cache, cache), Error);
  const auto refuses = [&](const CachedAttentionOptions& options) {
    EXPECT_THROW(cached_attention(q, k, k, cache, cache, options), Error);
  };
  refuses({.seen = torch::ones({1, 4}, torch::kBool)});
  refuses({.seen = torch::ones({1, 5}, torch::kInt64)});
  const torch::Tensor angles = torch::zeros({1, 4}), short_angles = torch::zeros({1, 3});
  refuses({.cos = angles});
  refuses({.cos = short_angles, .sin = short_angles});
  refuses({.cos = angles, .sin = short_angles});
  refuses({.cos = torch::zeros({2, 4}), .sin = torch::zeros({2, 4})});
  refuses({.slopes = torch::zeros({3})});
  refuses({.window = -1});
}

}  // namespace
}  // namespace tessera::ops
