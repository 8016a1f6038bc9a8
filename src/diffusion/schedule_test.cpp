#include "diffusion/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/core_testing.h"

namespace tessera::diffusion {
namespace {

TEST(Schedule, LosesTheImageStepByStep) {
  for (const ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::scaled_linear, ScheduleKind::cosine})
    for (const int64_t steps : {50, 300, 1000}) {
      const Schedule schedule(make_betas({.kind = kind, .steps = steps}));
      double before = 1;
      for (const double left : schedule.alphas_cumprod) {
        EXPECT_GT(left, 0);
        EXPECT_LT(left, before);
        before = left;
      }
      EXPECT_LT(before, 1e-3) << name_of(kind) << steps;
    }
}

// The kept steps keep their noise level.
TEST(Schedule, RespacedStepsStayAsNoisyAsTheyAre) {
  const Schedule whole(make_betas({}));
  for (const char* spacing : {"250", "7", "10,15,20", "ddim50", "1", ""}) {
    const std::vector<int64_t> kept = respace(whole.steps(), spacing);
    const Schedule fewer = whole.respaced(kept);
    ASSERT_EQ(fewer.steps(), std::ssize(kept));
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_NEAR(fewer.alphas_cumprod[i] / whole.alphas_cumprod[static_cast<size_t>(kept[i])], 1, 1e-12);
      EXPECT_EQ(fewer.timestep_map[i], kept[i]);
    }
  }
  EXPECT_EQ(respace(1000, "ddim50").at(1), 20);
  EXPECT_EQ(respace(300, "10,15,20").size(), 45u);
  EXPECT_EQ(respace(1000, "250").back(), 999);
}

TEST(Schedule, RefusesMoreStepsThanThereAre) {
  EXPECT_EQ(usage_error_of([] { respace(1000, "1001"); }),
            "steps '1001': 1001 are more than the 1000 of the schedule");
  EXPECT_NE(usage_error_of([] { respace(1000, "many"); }).find("must be a number as 250"), std::string::npos);
  EXPECT_NE(usage_error_of([] { respace(1000, "ddim333"); }).find("no whole stride makes 333"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] { make_betas({.steps = 0}); }).find("must be 1 to"), std::string::npos);
  EXPECT_NE(usage_error_of([] { make_betas({.steps = 10}); }).find("beta = "), std::string::npos);
}

TEST(Schedule, ZeroTerminalSnrKeepsTheFirstStep) {
  const std::vector<double> betas = make_betas({}), shifted = zero_terminal_snr(betas);
  EXPECT_NEAR(shifted.front(), betas.front(), 1e-12);
  EXPECT_EQ(cumulative_alphas(shifted).back(), 0);
}

// The weight of a clean image's error does not depend on the prediction: error of x0 = error of e / snr =
// error of v / (snr + 1).
TEST(Schedule, MinSnrWeighsOneErrorAlike) {
  const std::vector<double> snr = signal_to_noise(cumulative_alphas(make_betas({})));
  const auto clean = min_snr_weights(snr, 5, Prediction::x0),
             noise = min_snr_weights(snr, 5, Prediction::epsilon),
             velocity = min_snr_weights(snr, 5, Prediction::v);
  for (size_t t = 0; t < snr.size(); ++t) {
    EXPECT_LE(clean[t], 5);
    EXPECT_NEAR(noise[t] * snr[t], clean[t], 1e-9);
    EXPECT_NEAR(velocity[t] * (snr[t] + 1), clean[t], 1e-9);
  }
}

}  // namespace
}  // namespace tessera::diffusion
