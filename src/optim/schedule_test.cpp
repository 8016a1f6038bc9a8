#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/value.h"

namespace tessera::train {
namespace {

std::unique_ptr<Schedule> make(const std::string& toml, const ScheduleSpan& span) {
  return make_schedule(parse_toml(toml, "test"), span);
}

TEST(Schedule, CosineRisesReachesItsTopAndFallsToTheEnd) {
  const auto schedule = make("warmup_steps = 5\nmin_lr = 0.01", {1, 25, 5});
  EXPECT_DOUBLE_EQ(schedule->rate(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule->rate(4), 1);
  EXPECT_DOUBLE_EQ(schedule->rate(5), 1);
  EXPECT_DOUBLE_EQ(schedule->rate(15), 0.01 + 0.99 * 0.5);
  for (int64_t s = 5; s < 24; ++s) EXPECT_GT(schedule->rate(s), schedule->rate(s + 1));
  EXPECT_DOUBLE_EQ(schedule->rate(25), 0.01);
  EXPECT_DOUBLE_EQ(schedule->rate(1000), 0.01);
}

TEST(Schedule, LinearFallsInAStraightLine) {
  const auto schedule = make("name = 'linear'\nwarmup_steps = 5\nmin_lr = 0.2", {1, 25, 5});
  EXPECT_DOUBLE_EQ(schedule->rate(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule->rate(4), 1);
  EXPECT_DOUBLE_EQ(schedule->rate(15), 0.6);
  EXPECT_NEAR(schedule->rate(24) - schedule->rate(23), schedule->rate(8) - schedule->rate(7), 1e-15);
  EXPECT_DOUBLE_EQ(schedule->rate(25), 0.2);
}

TEST(Schedule, WarmupInEpochsAndInStepsAgree) {
  for (const std::string name : {"cosine", "mae_cosine", "constant", "step", "linear"}) {
    const auto a = make("name = '" + name + "'\nwarmup_epochs = 2", {0.3, 100, 10});
    const auto b = make("name = '" + name + "'\nwarmup_steps = 20", {0.3, 100, 10});
    for (int64_t s = 0; s < 110; ++s) EXPECT_DOUBLE_EQ(a->rate(s), b->rate(s)) << name << " at " << s;
  }
}

// Caron et al. 2021: the warm-up includes both ends.
TEST(Schedule, DinosWeightDecayGrowsByACosine) {
  const auto schedule =
      make("name = 'dino_cosine'\nwarmup_steps = 5\nmin_lr = 0.01\ndecay_factor = 10", {1, 25, 5});
  EXPECT_DOUBLE_EQ(schedule->rate(0), 0);
  EXPECT_DOUBLE_EQ(schedule->rate(2), 0.5);
  EXPECT_DOUBLE_EQ(schedule->rate(4), 1);
  EXPECT_DOUBLE_EQ(schedule->rate(5), 1);
  EXPECT_DOUBLE_EQ(schedule->rate(15), 0.01 + 0.99 * 0.5);
  EXPECT_DOUBLE_EQ(schedule->decay_factor(0), 1);
  EXPECT_NEAR(schedule->decay_factor(12) + schedule->decay_factor(13), 11, 1e-9);
  EXPECT_DOUBLE_EQ(schedule->decay_factor(25), 10);
  EXPECT_DOUBLE_EQ(make("", {1, 25, 5})->decay_factor(9), 1);
}

TEST(Schedule, PerEpochChangesBetweenEpochsOnly) {
  for (const std::string name : {"cosine", "timm_cosine"}) {
    const auto by_epoch = make("name = '" + name + "'\nwarmup_epochs = 2\nper_epoch = true", {0.3, 100, 10});
    const auto by_step = make("name = '" + name + "'\nwarmup_epochs = 2\nper_epoch = false", {0.3, 10, 1});
    for (int64_t s = 0; s < 100; ++s)
      EXPECT_DOUBLE_EQ(by_epoch->rate(s), by_step->rate(s / 10)) << name << " at " << s;
  }
}

TEST(Schedule, TimmsCosineJumpsAtTheEndOfTheWarmupUnlessItIsAPrefix) {
  const auto beside = make("name = 'timm_cosine'\nwarmup_steps = 5\nper_epoch = false", {1, 20, 1});
  const auto after =
      make("name = 'timm_cosine'\nwarmup_steps = 5\nper_epoch = false\nwarmup_prefix = true", {1, 20, 1});
  EXPECT_DOUBLE_EQ(beside->rate(0), 0);
  EXPECT_DOUBLE_EQ(beside->rate(4), 0.8);
  EXPECT_DOUBLE_EQ(beside->rate(5), 0.5 * (1 + std::cos(M_PI / 4)));
  EXPECT_DOUBLE_EQ(after->rate(5), 1);
  EXPECT_NEAR(beside->rate(20), 0, 1e-16);
  EXPECT_NEAR(after->rate(20), 0, 1e-16);
}

TEST(Schedule, CyclesGrowAndDecay) {
  const auto schedule = make(
      "name = 'timm_cosine'\nper_epoch = false\ncycle_epochs = 4\ncycle_mul = 2\ncycle_decay = "
      "0.5\ncycle_limit = 3",
      {1, 40, 1});
  EXPECT_DOUBLE_EQ(schedule->rate(0), 1);
  EXPECT_NEAR(schedule->rate(4), 0.5, 1e-12);  // cycles begin at 0, 4, 12 and end at 28
  EXPECT_NEAR(schedule->rate(8), 0.25, 1e-12);
  EXPECT_NEAR(schedule->rate(12), 0.25, 1e-12);
  EXPECT_NEAR(schedule->rate(20), 0.125, 1e-12);
  EXPECT_DOUBLE_EQ(schedule->rate(28), 0);
}

TEST(Schedule, StepsDropAtTheirEpochs) {
  const auto even = make("name = 'step'\nevery_epochs = 2\nfactor = 0.1", {1, 60, 10});
  const auto chosen = make("name = 'step'\nmilestones = [1, 4]\nfactor = 0.5", {1, 60, 10});
  EXPECT_DOUBLE_EQ(even->rate(19), 1);
  EXPECT_DOUBLE_EQ(even->rate(20), 0.1);
  EXPECT_DOUBLE_EQ(even->rate(59), 0.1 * 0.1);
  EXPECT_DOUBLE_EQ(chosen->rate(9), 1);
  EXPECT_DOUBLE_EQ(chosen->rate(10), 0.5);
  EXPECT_DOUBLE_EQ(chosen->rate(40), 0.25);
}

TEST(Schedule, EveryRateIsFiniteAndNotNegative) {
  for (const std::string& name : schedule_names())
    for (const ScheduleSpan& span : {ScheduleSpan{1, 0, 1}, {1, 1, 1}, {1, 1, 10}, {1, 7, 3}}) {
      const auto schedule = make("name = '" + name + "'", span);
      for (int64_t s = 0; s < 20; ++s) {
        EXPECT_TRUE(std::isfinite(schedule->rate(s))) << name;
        EXPECT_GE(schedule->rate(s), 0) << name;
        EXPECT_LE(schedule->rate(s), 1) << name;
      }
    }
}

TEST(Schedule, SettingsAreCompleteAndSlipsNameTheNearest) {
  const Value settings = resolve_schedule(parse_toml("warmup_epochs = 5", "test"));
  EXPECT_EQ(settings.find("name")->as_string(), "cosine");
  EXPECT_EQ(settings.find("min_lr")->as_double(), 0);
  EXPECT_EQ(resolve_schedule(settings), settings);
  const auto refusal = [](const std::string& toml) -> std::string {
    try {
      make(toml, {1, 10, 5});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(
      refusal("name = 'cosin'"),
      "schedule.name is 'cosin', must be one of cosine, mae_cosine, timm_cosine, dino_cosine, step, linear, "
      "constant, did "
      "you mean "
      "'cosine'?");
  EXPECT_EQ(refusal("warmup_epoch = 1"),
            "unknown key 'schedule.warmup_epoch', did you mean 'warmup_epochs'?");
  EXPECT_EQ(refusal("name = 'constant'\nmin_lr = 1"), "unknown key 'schedule.min_lr'");
  EXPECT_EQ(refusal("warmup_epochs = 1\nwarmup_steps = 1"),
            "schedule has both warmup_epochs and warmup_steps, give one of them");
}

// A warm-up as long as the run would never reach the rate.
TEST(Schedule, AWarmUpAsLongAsTheRunIsShortenedToATenth) {
  const auto settings = [](const std::string& toml) { return resolve_schedule(parse_toml(toml, "test")); };
  const ScheduleSpan span = {1, 20, 10};
  const auto tenth = make("warmup_steps = 2", span);
  for (const char* toml :
       {"warmup_epochs = 2", "warmup_epochs = 5", "warmup_steps = 20", "warmup_steps = 300"}) {
    const auto shortened = make(toml, span);
    for (int64_t step = 0; step < 20; ++step) EXPECT_EQ(shortened->rate(step), tenth->rate(step)) << toml;
    EXPECT_EQ(make(toml, {1, 5, 10})->rate(0), 1) << toml;  // too short for any
  }
  EXPECT_EQ(warmup_note(settings("warmup_epochs = 5"), span),
            "the warm-up of 50 steps is as long as the run of 20: shortened to 2 (schedule.warmup_steps)");
  EXPECT_EQ(warmup_note(settings("warmup_epochs = 1"), span), "");
  EXPECT_EQ(warmup_note(settings("name = 'constant'"), span), "");
}

}  // namespace
}  // namespace tessera::train
