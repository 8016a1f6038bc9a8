#include "tasks/darl.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/toml.h"

namespace tessera::tasks {
namespace {

using torch::Tensor;

// Quantiles of Beta at u (SciPy 1.17.1).
struct Quantiles {
  double a, b;
  std::vector<std::pair<double, double>> at;  // u, quantile
};

TEST(PatchNoise, FollowsBetaAlsoWhereDoublesEnd) {
  const std::vector<Quantiles> cases = {{1, 1, {{0.01, 0.01}, {0.5, 0.5}, {0.99, 0.99}}},
                                        {0.03,
                                         1,
                                         {{0.01, 2.1544346900318617e-67},
                                          {0.5, 9.239890216664625e-11},
                                          {0.9083333333333333, 0.040567202794949804}}},
                                        {0.1,
                                         10,
                                         {{0.01, 6.35634284678593e-22},
                                          {0.5, 6.210520703091691e-05},
                                          {0.9083333333333333, 0.03089698489606309}}}};
  constexpr int kDraws = 20000;
  for (const Quantiles& one : cases) {
    RandomStream stream(5, "test");
    std::vector<double> draws;
    for (int i = 0; i < kDraws; ++i) {
      draws.push_back(draw_beta(stream, one.a, one.b));
      ASSERT_TRUE(draws.back() >= 0 && draws.back() <= 1);
    }
    for (const auto& [u, quantile] : one.at) {
      const auto below = std::count_if(draws.begin(), draws.end(), [&](double x) { return x <= quantile; });
      EXPECT_NEAR(static_cast<double>(below) / kDraws, u, 1.63 / std::sqrt(kDraws)) << one.a << " " << one.b;
    }
  }
  // Shapes of which two ordinary gammas are both 0, and their share no number: half of the draws near 1.
  RandomStream stream(6, "test");
  int high = 0;
  for (int i = 0; i < 2000; ++i) high += draw_beta(stream, 1e-3, 1e-3) > 0.5;
  EXPECT_NEAR(high, 1000, 100);
}

TEST(PatchNoise, SchedulesFallFromCleanToNoise) {
  for (const auto schedule : {NoiseSchedule::beta, NoiseSchedule::ddpm, NoiseSchedule::linear})
    for (const int64_t steps : {int64_t{1}, int64_t{7}, int64_t{1000}}) {
      const std::vector<double> gammas = sampling_gammas(schedule, steps);
      ASSERT_EQ(gammas.size(), static_cast<size_t>(steps + 1));
      EXPECT_EQ(gammas.front(), 1);
      EXPECT_GT(gammas.back(), 0);
      EXPECT_LE(gammas.back(), 1e-3);
      EXPECT_TRUE(std::is_sorted(gammas.rbegin(), gammas.rend()));
    }
  EXPECT_EQ(sampling_gammas(NoiseSchedule::ddpm, 1000).back(), 1e-4);  // 4.04e-5, raised
  EXPECT_NEAR(sampling_gammas(NoiseSchedule::linear, 10)[3], 0.7, 1e-12);
  RandomStream stream(1, "test");
  double sum = 0;
  for (int i = 0; i < 4000; ++i) sum += draw_gamma(stream, {.schedule = NoiseSchedule::linear});
  EXPECT_NEAR(sum / 4000, 0.5, 0.02);
}

std::string refusal(const std::string& toml, bool order = false) {
  try {
    const Value settings = parse_toml(toml, "test");
    const Value complete = find_task("darl").resolve(settings);
    if (order) darl_order(read_config<DarlConfig>(complete, "task"), 2, 2);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

TEST(Darl, SettingsThatMakeNoSenseAreRefused) {
  EXPECT_EQ(refusal("a = 0"), "task.a = 0, must be above 0");
  EXPECT_EQ(refusal("b = -1"), "task.b = -1, must be above 0");
  EXPECT_EQ(refusal("gamma = true"), "task.gamma goes with objective \"diffusion\"");
  EXPECT_EQ(refusal("predict = \"noise\""), "task.predict = \"noise\" goes with objective \"diffusion\"");
  EXPECT_EQ(refusal("decoder = \"transformer\""),
            "task.decoder = \"transformer\" reads a noised patch, which objective \"mse\" has not, must be "
            "linear or mlp");
  EXPECT_EQ(refusal("objective = \"diffusion\"\nnormalise_pixels = true"),
            "task.normalise_pixels goes with objective \"mse\": noise is added to the pixels as they are");
  EXPECT_EQ(refusal("permutation = [0]"), "task.permutation goes with task.order = \"given\"");
  const std::string given = "order = \"given\"\npermutation = ";
  EXPECT_EQ(refusal(given + "[0, 1]", true),
            "task.permutation names 2 patches, must be a permutation of 0 to 3");
  EXPECT_EQ(refusal(given + "[0, 1, 2, 1]", true),
            "task.permutation holds 1 twice, must be a permutation of 0 to 3");
  EXPECT_EQ(refusal(given + "[0, 1, 2, 4]", true),
            "task.permutation holds 4, must be a permutation of 0 to 3");
  EXPECT_EQ(refusal(given + "[3, 1, 2, 0]", true), "no error");
}

// The loss in plain loops, from what the pass gives.
TEST(Darl, LossIsTheMeanOverPixelsAndPatches) {
  for (const std::string objective : {"mse", "diffusion"}) {
    const Value settings = find_task("darl").resolve(
        Value(Value::Table{{"objective", objective}, {"order", "nested"}, {"decoder_heads", 2}}));
    const auto config = read_config<DarlConfig>(settings, "task");
    const models::ModelSpec spec = models::resolve_model(
        "darl",
        Value(Value::Table{
            {"dim", 16}, {"heads", 2}, {"depth", 1}, {"patch_size", 4}, {"image_size", 16}, {"classes", 0}}));
    models::PatchPredictor predictor(models::build_backbone(spec, 1), spec, darl_order(config, 4, 4), "test");
    models::PatchDecoder decoder(darl_decoder(config, predictor));
    decoder.initialise(2);
    torch::manual_seed(3);
    const Tensor images = torch::randn({2, 3, 16, 16}), noise = torch::randn({2, 16, 48}),
                 gamma = torch::rand({2, 16});
    const DarlPass pass = darl_pass(config, predictor, decoder, images, {.noise = noise, .gamma = gamma}, {});
    const Tensor each = pass.each();
    const Tensor pixels = predictor.in_order(images);
    for (int64_t t = 0; t < 16; ++t) {
      double sum = 0;
      for (int64_t i = 0; i < 48; ++i)
        sum += std::pow((pass.predicted[1][t][i] - pixels[1][t][i]).item<double>(), 2);
      EXPECT_NEAR(each[1][t].item<double>(), sum / 48, 1e-5);
    }
    if (objective == "diffusion") {
      const double share = gamma[0][5].item<double>();
      EXPECT_NEAR(pass.noised[0][5][7].item<double>(),
                  std::sqrt(share) * pixels[0][5][7].item<double>() +
                      std::sqrt(1 - share) * noise[0][5][7].item<double>(),
                  1e-5);
    }
  }
}

}  // namespace
}  // namespace tessera::tasks
