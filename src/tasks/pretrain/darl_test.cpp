#include "tasks/pretrain/darl.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "core/value.h"
#include "tasks/pretrain/dvae.h"
#include "tasks/pretrain/patch_bound.h"

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
  // For these shapes two ordinary gammas both underflow to 0, and their ratio is NaN: half the draws must be
  // near 1.
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
  EXPECT_EQ(refusal("objective = \"tokens\""),
            "task.objective = \"tokens\" needs task.tokeniser: weights of task dvae, or of DALL-E's encoder");
  EXPECT_EQ(refusal("tokeniser = \"x\""), "task.tokeniser goes with objective \"tokens\"");
  EXPECT_EQ(refusal("bound_draws = 4"),
            "task.bound_draws goes with objective \"diffusion\": the others bound no likelihood of pixels");
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

// The loss in plain loops, from the output of the pass.
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

struct Small {
  models::ModelSpec spec;
  std::shared_ptr<models::Backbone> trunk;
  std::shared_ptr<models::PatchPredictor> predictor;
  std::shared_ptr<models::PatchDecoder> decoder;
};

Small small(const DarlConfig& config, bool two_stream) {
  Small out;
  out.spec = models::resolve_model("darl", Value(Value::Table{{"dim", 16},
                                                              {"heads", 2},
                                                              {"depth", 2},
                                                              {"patch_size", 4},
                                                              {"image_size", 16},
                                                              {"classes", 0},
                                                              {"two_stream", two_stream}}));
  out.trunk = models::build_backbone(out.spec, 1);
  out.predictor =
      std::make_shared<models::PatchPredictor>(out.trunk, out.spec, darl_order(config, 4, 4), "test");
  out.decoder = std::make_shared<models::PatchDecoder>(darl_decoder(config, *out.predictor));
  out.decoder->initialise(2);
  out.trunk->to(torch::kFloat64), out.decoder->to(torch::kFloat64);
  return out;
}

Tensor draw_orders_of(int64_t samples) {
  std::vector<Tensor> orders;
  for (int64_t i = 0; i < samples; ++i)
    orders.push_back(torch::tensor(RandomStream(3, "orders", static_cast<uint64_t>(i)).permutation(16)));
  return torch::stack(orders);
}

// Each sample has its own order: same result as alone, and no prediction sees its own or a later patch.
TEST(Darl, EverySampleHasItsOrder) {
  const Tensor orders = draw_orders_of(3);
  torch::manual_seed(4);
  const Tensor images = torch::randn({3, 3, 16, 16}, torch::kFloat64);
  DarlConfig config;
  config.order = DarlOrder::random;
  const Small one = small(config, true);
  const DarlPass pass = darl_pass(config, *one.predictor, *one.decoder, images, {.orders = orders}, {});
  for (int64_t i = 0; i < 3; ++i) {
    DarlConfig alone;
    alone.order = DarlOrder::given;
    const int64_t* order = orders[i].const_data_ptr<int64_t>();
    alone.permutation.assign(order, order + 16);
    const Small same = small(alone, true);
    const Tensor image = images.slice(0, i, i + 1).clone().requires_grad_();
    const DarlPass expected = darl_pass(alone, *same.predictor, *same.decoder, image, {}, {});
    EXPECT_TRUE(torch::allclose(pass.predicted[i], expected.predicted[0], 1e-10, 1e-10));
    EXPECT_TRUE(torch::allclose(pass.each()[i], expected.each()[0], 1e-10, 1e-10));
    for (const int64_t t : {0, 5, 15}) {
      const Tensor gradient = torch::autograd::grad({expected.predicted[0][t].sum()}, {image}, {}, true)[0];
      const Tensor by_patch = same.predictor->in_order(gradient)[0].abs().amax(1);
      EXPECT_EQ(by_patch.slice(0, t).max().item<double>(), 0) << t;
      if (t > 0) {
        EXPECT_GT(by_patch.slice(0, 0, t).min().item<double>(), 0) << t;
      }
    }
  }
  EXPECT_TRUE(
      torch::equal(one.predictor->to_images(one.predictor->in_order(images, orders), orders), images));
}

TEST(Darl, TokensAreCrossEntropyInTheOrderOfThePatches) {
  DarlConfig config;
  config.objective = DarlObjective::tokens;
  config.order = DarlOrder::nested;
  config.codes = 7;
  const Small one = small(config, false);
  torch::manual_seed(5);
  const Tensor images = torch::randn({2, 3, 16, 16}, torch::kFloat64), tokens = torch::randint(7, {2, 16});
  const DarlPass pass = darl_pass(config, *one.predictor, *one.decoder, images, {.tokens = tokens}, {});
  ASSERT_EQ(pass.predicted.sizes(), (std::vector<int64_t>{2, 16, 7}));
  for (int64_t t = 0; t < 16; ++t) {
    const int64_t token = tokens[1][one.predictor->order()[static_cast<size_t>(t)]].item<int64_t>();
    const Tensor share = pass.predicted[1][t].exp() / pass.predicted[1][t].exp().sum();
    EXPECT_NEAR(pass.each()[1][t].item<double>(), -std::log(share[token].item<double>()), 1e-9);
  }
}

// Every step of a short chain, term by term.
TEST(Darl, BoundIsThatOfItsFormula) {
  DarlConfig config;
  config.objective = DarlObjective::diffusion;
  config.decoder_heads = 2;
  const Small one = small(config, false);
  torch::manual_seed(6);
  const Tensor bytes = torch::randint(256, {1, 3, 16, 16}).to(torch::kFloat64);
  const std::vector<double> mean = {0.5, 0.4, 0.3}, std = {0.25, 0.2, 0.3};
  const Tensor shift = torch::tensor(mean, torch::kFloat64).view({3, 1, 1}),
               spread = torch::tensor(std, torch::kFloat64).view({3, 1, 1});
  const Tensor pixels = one.predictor->in_order((bytes / 255 - shift) / spread);
  PatchBound bound{.gammas = {1, 0.8, 0.5, 0.1}, .draws = 99};
  set_bins(bound, mean, std, 4);
  const Tensor z = torch::randn({1, 16, 16}, torch::kFloat64);
  std::vector<Tensor> noises;
  for (int i = 0; i < 3; ++i) noises.push_back(torch::randn(pixels.sizes(), torch::kFloat64));
  const auto noise = [&](int64_t index) { return noises[static_cast<size_t>(index)]; };
  const auto places = [&](int64_t) { return torch::full({1, 16}, 0.5, torch::kFloat64); };
  const Tensor bits = bits_per_dimension(bound, *one.decoder, z, pixels, places, noise);
  const torch::NoGradGuard no_grad;
  const auto condition = one.decoder->condition(z);
  const auto clean = [&](double gamma, const Tensor& e) {
    return one.decoder->denoise(*condition, std::sqrt(gamma) * pixels + std::sqrt(1 - gamma) * e,
                                torch::full({1, 16, 1}, gamma, torch::kFloat64));
  };
  const auto normal_below = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  const int64_t patch = 3;
  double nats = 0;
  for (int64_t n = 0; n < 48; ++n) {
    const auto c = static_cast<size_t>(n % 3);
    const double x = pixels[0][patch][n].item<double>();
    nats += 0.5 * (0.1 * x * x + 0.9 - 1 - std::log(0.9));
    for (int s = 2; s <= 3; ++s) {
      const double gamma = bound.gammas[static_cast<size_t>(s)],
                   next = bound.gammas[static_cast<size_t>(s - 1)], alpha = gamma / next,
                   variance = (1 - next) * (1 - alpha) / (1 - gamma),
                   factor = std::sqrt(next) * (1 - alpha) / (1 - gamma);
      const double off = x - clean(gamma, noises[static_cast<size_t>(s - 1)])[0][patch][n].item<double>();
      nats += std::pow(factor * off, 2) / (2 * variance);
    }
    const double bin = 1 / 255.0 / std[c], deviation = std::sqrt(0.2),
                 mu = clean(0.8, noises[0])[0][patch][n].item<double>(), byte = x * std[c] + mean[c];
    const double upper = byte > 0.999 ? 1 : normal_below((x + bin / 2 - mu) / deviation),
                 lower = byte < 0.001 ? 0 : normal_below((x - bin / 2 - mu) / deviation);
    nats -= std::log(upper - lower);
  }
  EXPECT_NEAR(bits[0][patch].item<double>(), nats / 48 / std::log(2.0), 1e-9);
}

TEST(Dvae, SettingsFallByHalfACosine) {
  EXPECT_EQ(dvae_annealed(1, 0.25, 0, 100), 1);
  EXPECT_NEAR(dvae_annealed(1, 0.25, 50, 100), 0.625, 1e-12);
  EXPECT_EQ(dvae_annealed(1, 0.25, 100, 100), 0.25);
  EXPECT_EQ(dvae_annealed(0, 2, 7, 0), 2);
}

}  // namespace
}  // namespace tessera::tasks
