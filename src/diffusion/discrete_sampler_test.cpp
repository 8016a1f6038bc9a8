#include "diffusion/discrete_sampler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace tessera::diffusion {
namespace {

using torch::Tensor;

constexpr double kShift = 0.37;

// A network with the exact prediction for one image: all its pixels are kShift.
Network knowing(const std::vector<double>& alphas, Prediction prediction) {
  return [=](const Tensor& x, const Tensor& time) {
    // Times between two steps are interpolated by log sigma, as in the samplers.
    const double at = time[0].item<double>();
    const auto low = static_cast<size_t>(at);
    const auto sigma_of = [&](size_t i) { return std::sqrt((1 - alphas[i]) / alphas[i]); };
    const double share = at - static_cast<double>(low);
    const double sigma =
        share == 0 ? sigma_of(low) : sigma_of(low) + share * (sigma_of(low + 1) - sigma_of(low));
    const double a = 1 / std::sqrt(1 + sigma * sigma), s = sigma * a;
    const Tensor clean = torch::full_like(x, kShift), noise = (x - a * clean) / s;
    return prediction == Prediction::x0 ? clean : prediction == Prediction::v ? a * noise - s * clean : noise;
  };
}

Walk walk_with_noise(const Tensor& like) {
  Walk walk;
  walk.noise = [like](int64_t step) {
    torch::manual_seed(static_cast<uint64_t>(step));
    return torch::randn_like(like);
  };
  return walk;
}

std::vector<DiscreteOptions> all_options() {
  std::vector<DiscreteOptions> all;
  for (const int64_t steps : {2, 9, 20})
    for (const Spacing spacing : {Spacing::leading, Spacing::trailing, Spacing::linspace}) {
      all.push_back({.method = Method::ddim, .steps = steps, .spacing = spacing});
      all.push_back({.method = Method::ddim, .steps = steps, .eta = 1, .spacing = spacing});
      for (const int64_t order : {1, 2, 3}) {
        all.push_back({.method = Method::dpm, .steps = steps, .order = order, .spacing = spacing});
        all.push_back({.method = Method::dpm_sde, .steps = steps, .order = order, .spacing = spacing});
      }
      for (const Method method : {Method::euler, Method::euler_ancestral, Method::heun})
        all.push_back({.method = method, .steps = steps, .spacing = spacing});
    }
  using enum SigmaSpacing;
  for (const SigmaSpacing sigmas : {karras, exponential, beta})
    for (const Method method : {Method::dpm, Method::euler, Method::heun})
      all.push_back({.method = method, .steps = 12, .spacing = Spacing::linspace, .sigmas = sigmas});
  all.push_back({.method = Method::dpm, .steps = 9, .order = 3, .sigmas = log_snr});
  all.push_back({.method = Method::dpm, .steps = 9, .least_log_snr = -4});
  all.push_back({.method = Method::ddim, .steps = 9, .threshold = 0.9});
  for (const int64_t steps : {1, 10, 250}) all.push_back({.method = Method::ddpm, .steps = steps});
  return all;
}

// The quantile of each image's own magnitudes becomes 1, and nothing is larger.
TEST(DiscreteSampler, DynamicThresholdsPushAnImageInwards) {
  const Tensor image = torch::linspace(-3, 3, 61, torch::kFloat64).view({1, 1, 1, 61}), small = image / 6;
  const Network network = [&](const Tensor& x, const Tensor&) { return torch::cat({image, small}).to(x); };
  for (const Method method : {Method::ddim, Method::dpm})
    for (const double most : {1.5, DiscreteOptions::kUnbounded}) {
      const auto sampler =
          make_discrete_sampler({}, {.prediction = Prediction::x0},
                                {.method = method, .steps = 3, .threshold = 0.8, .threshold_most = most});
      const Tensor end = sampler->run(network, torch::zeros({2, 1, 1, 61}, torch::kFloat64), {});
      // The quantile 0.8 of the magnitudes 0, 0.1, 0.1, …, 3, 3 (61) is 2.4.
      const double s = std::min(2.4, most);
      EXPECT_TRUE(torch::allclose(end[0], (image[0] / s).clamp(-1, 1))) << name_of(method) << " " << most;
      EXPECT_TRUE(torch::allclose(end[1], small[0])) << "a small image stays as it is";
    }
}

// Exact for a constant noise, with any order and form.
TEST(DiscreteSampler, SolverOfTheNoiseTakesAConstantNoiseAwayExactly) {
  torch::manual_seed(3);
  const Tensor noise = torch::randn({2, 3, 4, 4}, torch::kFloat64), clean = torch::rand_like(noise);
  const Network network = [&](const Tensor&, const Tensor&) { return noise; };
  for (const int64_t order : {1, 2, 3})
    for (const SolverForm form : {SolverForm::midpoint, SolverForm::heun}) {
      const auto sampler = make_discrete_sampler({}, {},
                                                 {.method = Method::dpm,
                                                  .steps = 7,
                                                  .order = order,
                                                  .form = form,
                                                  .final_sigma = FinalSigma::minimum,
                                                  .solver_of = SolverOf::noise});
      const auto at = [&](int64_t step) {
        return sampler->level(step).alpha * clean + sampler->level(step).sigma * noise;
      };
      EXPECT_TRUE(torch::allclose(sampler->run(network, at(0), {}), at(7), 0, 1e-12)) << order;
    }
}

// A step of DDIM arrives at the noise of the next step that it takes; diffusers' rule misses it for linspace, and
// for trailing if the steps do not divide the schedule.
TEST(DiscreteSampler, DdimArrivesAtTheNextStepsNoise) {
  torch::manual_seed(4);
  const Tensor noise = torch::randn({1, 3, 4, 4}, torch::kFloat64), clean = torch::rand_like(noise);
  const auto furthest = [&](const DiscreteOptions& options) {
    const auto sampler = make_discrete_sampler({}, {}, options);
    const auto at = [&](int64_t step) {
      return sampler->level(step).alpha * clean + sampler->level(step).sigma * noise;
    };
    double worst = 0;
    int64_t step = 0;
    const Network network = [&](const Tensor& x, const Tensor&) {
      worst = std::max(worst, (x - at(step++)).abs().max().item<double>());
      return noise;
    };
    sampler->run(network, at(0), {});
    return worst;
  };
  for (const auto& [spacing, steps, differs] : {std::tuple{Spacing::linspace, 50, true},
                                                {Spacing::trailing, 30, true},
                                                {Spacing::trailing, 50, false},
                                                {Spacing::leading, 30, false}}) {
    DiscreteOptions options{.method = Method::ddim, .steps = steps, .spacing = spacing};
    EXPECT_LT(furthest(options), 1e-9) << name_of(spacing) << " " << steps;
    options.next_level = NextLevel::diffusers;
    EXPECT_EQ(furthest(options) > 1e-6, differs) << name_of(spacing) << " " << steps;
  }
}

// Every sampler ends at the image that the network predicts.
TEST(DiscreteSampler, EndsAtTheImageThatTheNetworkKnows) {
  const std::vector<double> alphas = cumulative_alphas(make_betas({}));
  torch::manual_seed(1);
  const Tensor noise = torch::randn({2, 3, 4, 4}, torch::kFloat64);
  for (const DiscreteOptions& options : all_options())
    for (const Prediction prediction : {Prediction::epsilon, Prediction::x0, Prediction::v}) {
      const auto sampler =
          make_discrete_sampler({}, {.prediction = prediction, .variance = Variance::fixed_small}, options);
      const Tensor end =
          sampler->run(knowing(alphas, prediction), noise * sampler->start_scale(), walk_with_noise(noise));
      EXPECT_TRUE(torch::allclose(end, torch::full_like(end, kShift), 0, 2e-3))
          << name_of(options.method) << " " << options.steps << " " << name_of(options.spacing) << " order "
          << options.order << " " << name_of(prediction) << ": " << (end - kShift).abs().max().item<double>();
    }
}

TEST(DiscreteSampler, LevelsFallAndAWalkMayBeginInTheMiddle) {
  const std::vector<double> alphas = cumulative_alphas(make_betas({}));
  const Tensor noise = torch::ones({1, 1, 2, 2}, torch::kFloat64);
  for (const DiscreteOptions& options : all_options()) {
    const auto sampler = make_discrete_sampler({}, {.variance = Variance::fixed_small}, options);
    for (int64_t step = 0; step < sampler->steps(); ++step)
      EXPECT_GT(sampler->level(step).sigma, sampler->level(step + 1).sigma) << name_of(options.method);
    Walk walk = walk_with_noise(noise);
    walk.first = sampler->steps() / 2;
    int64_t steps = 0;
    walk.after = [&](int64_t, Tensor&) { ++steps; };
    const Level level = sampler->level(walk.first);
    const Tensor end =
        sampler->run(knowing(alphas, Prediction::epsilon),
                     level.alpha * torch::full_like(noise, kShift) + level.sigma * noise, walk);
    EXPECT_EQ(steps, sampler->steps() - walk.first);
    EXPECT_TRUE(torch::allclose(end, torch::full_like(end, kShift), 0, 2e-3)) << name_of(options.method);
  }
}

// For normally distributed images the network is linear, and each x_t has exactly one image.
TEST(DiscreteSampler, WalksBackToWhereItCameFrom) {
  constexpr double kSpread = 0.25;  // variance of the images
  const std::vector<double> alphas = cumulative_alphas(make_betas({}));
  torch::manual_seed(5);
  const Tensor noise = torch::randn({2, 3, 4, 4}, torch::kFloat64);
  for (const Prediction prediction : {Prediction::epsilon, Prediction::x0, Prediction::v}) {
    const Network network = [&](const Tensor& x, const Tensor& time) {
      const double left = alphas[static_cast<size_t>(time[0].item<double>())], a = std::sqrt(left),
                   s = std::sqrt(1 - left), variance = left * kSpread + s * s;
      const double clean = a * kSpread / variance, drawn = s / variance;
      return x * (prediction == Prediction::x0  ? clean
                  : prediction == Prediction::v ? a * drawn - s * clean
                                                : drawn);
    };
    const auto error = [&](int64_t steps, int64_t first) {
      const auto sampler =
          make_discrete_sampler({}, {.prediction = prediction}, {.method = Method::ddim, .steps = steps});
      Walk walk;
      walk.first = first;
      int64_t seen = 0;
      walk.after = [&](int64_t, Tensor&) { ++seen; };
      const Tensor result = sampler->run(network, noise, walk);
      const Tensor back = sampler->walk_back(network, result, walk);
      EXPECT_EQ(seen, 2 * (steps - first));
      return (back - noise).abs().max().item<double>();
    };
    EXPECT_LT(error(100, 0), 0.02) << name_of(prediction);
    EXPECT_LT(error(100, 0), error(10, 0)) << name_of(prediction);
    EXPECT_LT(error(100, 60), 0.02) << name_of(prediction);
  }
  const auto drawing = make_discrete_sampler({}, {}, {.method = Method::ddim, .steps = 5, .eta = 1});
  EXPECT_THROW(drawing->walk_back([](const Tensor& x, const Tensor&) { return x; }, noise, {}), Error);
  const auto chain = make_discrete_sampler({}, {.variance = Variance::fixed_small}, {.steps = 5});
  EXPECT_THROW(chain->walk_back([](const Tensor& x, const Tensor&) { return x; }, noise, {}), Error);
}

TEST(DiscreteSampler, NamesStepAndSampleThatIsNotFinite) {
  const auto sampler = make_discrete_sampler({}, {}, {.method = Method::ddim, .steps = 5});
  int64_t calls = 0;
  const Network broken = [&](const Tensor& x, const Tensor&) {
    Tensor out = torch::zeros_like(x);
    if (++calls == 3) out[1].fill_(std::nan(""));
    return out;
  };
  try {
    sampler->run(broken, torch::ones({2, 1, 2, 2}), {});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("after step 3 of 5 sample 1 of the batch is not finite"),
              std::string::npos)
        << error.what();
  }
}

TEST(DiscreteSampler, RefusesWhatDoesNotGoTogether) {
  const auto refused = [](const ScheduleOptions& schedule, const GaussianOptions& network,
                          const DiscreteOptions& options) {
    try {
      make_discrete_sampler(schedule, network, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage);
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused({}, {}, {.steps = 1001}));
  EXPECT_TRUE(refused({}, {}, {.steps = 0}));
  EXPECT_TRUE(refused({}, {}, {.method = Method::dpm, .eta = 0.5}));
  EXPECT_TRUE(refused({}, {}, {.method = Method::ddim, .sigmas = SigmaSpacing::karras}));
  EXPECT_TRUE(refused({}, {}, {.method = Method::euler_ancestral, .sigmas = SigmaSpacing::beta}));
  EXPECT_TRUE(refused({}, {}, {.method = Method::euler, .sigmas = SigmaSpacing::log_snr}));
  EXPECT_TRUE(refused({}, {}, {.method = Method::euler, .threshold = 0.9}));
  EXPECT_TRUE(refused({}, {}, {.method = Method::ddim, .threshold = 1.5}));
  EXPECT_TRUE(refused({}, {}, {.method = Method::dpm, .solver_of = SolverOf::noise}));
  EXPECT_TRUE(refused({}, {}, {.method = Method::dpm, .least_log_snr = 10}));
  EXPECT_TRUE(refused({}, {}, {.method = Method::euler, .clip = 1}));
  EXPECT_TRUE(refused({}, {}, {.method = Method::dpm, .order = 4}));
  EXPECT_TRUE(refused({.zero_terminal_snr = true}, {}, {.method = Method::ddim, .steps = 10}));
  EXPECT_FALSE(refused({.zero_terminal_snr = true}, {.prediction = Prediction::v},
                       {.method = Method::ddim, .steps = 10}));
}

}  // namespace
}  // namespace tessera::diffusion
