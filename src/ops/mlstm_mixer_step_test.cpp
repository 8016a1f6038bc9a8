#include "ops/mlstm_mixer.h"

#include <gtest/gtest.h>

namespace tessera::ops {
namespace {

using torch::Tensor;

constexpr int64_t kBatch = 2, kTokens = 9, kInner = 16, kHeads = 2;

MlstmMixerParameters drawn(int64_t kernel, bool own_convs, bool paper) {
  torch::manual_seed(11);
  const auto draw = [](torch::IntArrayRef shape) { return torch::randn(shape, torch::kFloat64) * 0.4; };
  MlstmMixerParameters p;
  if (kernel > 0) p.conv_weight = draw({kInner, 1, kernel}), p.conv_bias = draw({kInner});
  if (own_convs) {
    p.k_conv_weight = draw({kInner, 1, kernel}), p.k_conv_bias = draw({kInner});
    p.v_conv_weight = draw({kInner, 1, kernel}), p.v_conv_bias = draw({kInner});
  }
  for (Tensor* weight : {&p.q_weight, &p.k_weight, &p.v_weight}) *weight = draw({kInner / 4, 4, 4});
  for (Tensor* bias : {&p.q_bias, &p.k_bias, &p.v_bias, &p.norm_weight, &p.norm_bias, &p.skip})
    *bias = draw({kInner});
  for (Tensor* weight : {&p.input_weight, &p.forget_weight})
    *weight = draw({kHeads, (paper ? 1 : 3) * kInner});
  for (Tensor* bias : {&p.input_bias, &p.forget_bias}) *bias = draw({kHeads});
  return p;
}

TEST(MlstmMixerStep, StepsAreTheRowsOfTheSequence) {
  torch::manual_seed(12);
  const Tensor u = torch::randn({kBatch, kTokens, 2 * kInner}, torch::kFloat64);
  for (const int64_t kernel : {0, 1, 4})
    for (const bool own_convs : {false, true})
      for (const bool paper : {false, true}) {
        if (kernel == 0 && own_convs) continue;
        const MlstmMixerParameters parameters = drawn(kernel, own_convs, paper);
        MlstmState last;
        MlstmMixerOptions options{
            .heads = kHeads, .paper_cell = paper, .value_conv = own_convs, .last = &last};
        const Tensor whole = mlstm_mixer_unfused(u, parameters, options);
        MlstmMixerState state;
        for (int64_t t = 0; t < kTokens; ++t) {
          const Tensor row = mlstm_mixer_step(u.slice(1, t, t + 1), parameters, options, state);
          EXPECT_TRUE(torch::allclose(row, whole.slice(1, t, t + 1), 1e-9, 1e-11))
              << kernel << own_convs << paper << " at " << t;
        }
        EXPECT_TRUE(torch::allclose(state.cell.c, last.c)) << kernel << own_convs << paper;
      }
}

TEST(MlstmMixerStep, RefusesWhatSeesTokensToCome) {
  const MlstmMixerParameters parameters = drawn(3, false, false);
  const Tensor u = torch::zeros({1, 1, 2 * kInner}, torch::kFloat64);
  MlstmMixerState state;
  EXPECT_ANY_THROW(mlstm_mixer_step(u, parameters, {.heads = kHeads, .causal = false}, state));
  EXPECT_ANY_THROW(mlstm_mixer_step(u, parameters, {.heads = kHeads, .reverse = true}, state));
  EXPECT_ANY_THROW(mlstm_mixer_step(u.expand({1, 2, -1}), parameters, {.heads = kHeads}, state));
}

}  // namespace
}  // namespace tessera::ops
