#include "diffusion/interpolant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/error.h"
#include "diffusion/interpolant_sampler.h"

namespace tessera::diffusion {
namespace {

using torch::Tensor;

constexpr PathKind kPaths[] = {PathKind::linear, PathKind::gvp, PathKind::vp};

Tensor drawn_normal(std::vector<int64_t> shape, uint64_t seed) {
  torch::manual_seed(seed);
  return torch::randn(shape, torch::kFloat64);
}

TEST(Path, SlopesAreThoseOfTheCurves) {
  constexpr double kStep = 1e-6;
  const Tensor t = torch::linspace(0.05, 0.95, 7, torch::kFloat64);
  for (const PathKind kind : kPaths) {
    const Path path(kind);
    const auto slope = [&](auto&& curve) { return (curve(t + kStep) - curve(t - kStep)) / (2 * kStep); };
    EXPECT_TRUE(torch::allclose(path.alpha_slope(t), slope([&](const Tensor& at) { return path.alpha(at); }),
                                1e-6, 1e-7));
    EXPECT_TRUE(torch::allclose(path.sigma_slope(t), slope([&](const Tensor& at) { return path.sigma(at); }),
                                1e-6, 1e-7));
    EXPECT_TRUE(torch::allclose(path.alpha_log_slope(t), path.alpha_slope(t) / path.alpha(t)));
  }
}

TEST(Path, VelocityScoreAndNoiseSayTheSame) {
  const Tensor clean = drawn_normal({5, 2, 3, 3}, 1), noise = drawn_normal({5, 2, 3, 3}, 2),
               t = torch::linspace(0.1, 0.9, 5, torch::kFloat64);
  for (const PathKind kind : kPaths) {
    const Path path(kind);
    const Tensor x = path.noised(clean, noise, t), v = path.velocity(clean, noise, t);
    EXPECT_TRUE(torch::allclose(path.noise_of_velocity(v, x, t), noise, 1e-8, 1e-8)) << name_of(kind);
    const Tensor score = path.score_of_velocity(v, x, t);
    EXPECT_TRUE(torch::allclose(score, -noise / path.sigma(beside(t, x)), 1e-8, 1e-8)) << name_of(kind);
    EXPECT_TRUE(torch::allclose(path.velocity_of_score(score, x, t), v, 1e-8, 1e-8)) << name_of(kind);
  }
}

// If all images are one image, every method ends there.
TEST(InterpolantSampler, EndsAtTheImageThatTheNetworkKnows) {
  const Tensor clean = drawn_normal({1, 2, 3, 3}, 3).clamp(-1, 1).expand({2, 2, 3, 3}),
               noise = drawn_normal({2, 2, 3, 3}, 4);
  for (const PathKind kind : kPaths) {
    const Interpolant interpolant({.path = kind, .field = Field::velocity, .sample_end = 1e-3});
    const Path& path = interpolant.path();
    const Network network = [&](const Tensor& x, const Tensor& t) {
      const Tensor at = beside(t.clamp_max(1 - 1e-4), x), e = (x - path.alpha(at) * clean) / path.sigma(at);
      return path.alpha_slope(at) * clean + path.sigma_slope(at) * e;
    };
    const auto near = [&](const Sampler& sampler, const char* what) {
      Walk walk;
      walk.noise = [&](int64_t step) {
        return drawn_normal({2, 2, 3, 3}, 100 + static_cast<uint64_t>(step));
      };
      const Tensor end = sampler.run(network, noise, walk);
      EXPECT_LT((end - clean).abs().max().item<double>(), 0.1) << name_of(kind) << " " << what;
    };
    for (const OdeMethod method : {OdeMethod::euler, OdeMethod::heun, OdeMethod::dopri5})
      near(*make_ode_sampler(interpolant, {.method = method, .points = 200}), name_of(method).c_str());
    for (const SdeMethod method : {SdeMethod::euler, SdeMethod::heun})
      near(*make_sde_sampler(interpolant, {.method = method, .points = 200}), "sde");
  }
}

TEST(InterpolantSampler, WalksBackToWhereItCameFrom) {
  const Interpolant interpolant({});
  const Network network = [](const Tensor& x, const Tensor& t) { return x.sin() + 2 * beside(t, x) - 1; };
  const Tensor x = drawn_normal({3, 1, 2, 2}, 7);
  const auto error = [&](OdeMethod method, int64_t points) {
    const auto sampler = make_ode_sampler(interpolant, {.method = method, .points = points});
    Walk walk;
    walk.first = 1;
    return (sampler->walk_back(network, sampler->run(network, x, walk), walk) - x).abs().max().item<double>();
  };
  EXPECT_LT(error(OdeMethod::dopri5, 5), 5e-3);
  for (const OdeMethod method : {OdeMethod::euler, OdeMethod::heun})
    EXPECT_LT(error(method, 161), error(method, 11) / 8) << name_of(method);
  EXPECT_THROW(make_sde_sampler(interpolant, {})->walk_back(network, x, {}), Error);
}

// Each sample has its own steps: the rest of the batch does not matter.
TEST(InterpolantSampler, DormandPrinceKnowsNoBatch) {
  const Interpolant interpolant({});
  const Network network = [](const Tensor& x, const Tensor& t) {
    return -x * (1 + 5 * beside(t, x)) + x.pow(2) / 9;
  };
  const Tensor x =
      drawn_normal({4, 1, 2, 2}, 5) * torch::tensor({0.1, 1.0, 2.0, 3.0}, torch::kFloat64).view({4, 1, 1, 1});
  const auto sampler = make_ode_sampler(interpolant, {.points = 3});
  const Tensor together = sampler->run(network, x, {});
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_TRUE(torch::equal(together.slice(0, i, i + 1), sampler->run(network, x.slice(0, i, i + 1), {})));
}

// Normally distributed images of deviation s have a velocity and a density in closed form.
TEST(InterpolantSampler, BitsAreThoseOfTheDensity) {
  constexpr double kDeviation = 0.5;
  const Interpolant interpolant({});
  const Network network = [](const Tensor& x, const Tensor& t) {
    const Tensor at = beside(t, x), variance = torch::full_like(at, kDeviation * kDeviation);
    return (at * variance - (1 - at)) / (at.square() * variance + (1 - at).square()) * x;
  };
  const Tensor x = kDeviation * drawn_normal({3, 1, 4, 4}, 6), signs = drawn_normal({3, 1, 4, 4}, 7).sign();
  const Tensor bits =
      ode_bits(interpolant, network, x, signs, {.points = 2, .absolute = 1e-9, .relative = 1e-9});
  const Tensor nats = 0.5 * (x / kDeviation).square().flatten(1).mean(1) + std::log(kDeviation) +
                      0.5 * std::log(2 * std::numbers::pi);
  EXPECT_TRUE(torch::allclose(bits, nats / std::numbers::ln2, 1e-6, 1e-6));
}

TEST(InterpolantSampler, RefusesADivisionByZero) {
  const auto message = [](const Interpolant& interpolant, const SdeOptions& options) {
    try {
      make_sde_sampler(interpolant, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message(Interpolant({}), {.form = DiffusionForm::sbdm}).find("divides by zero at t = 0"),
            std::string::npos);
  EXPECT_NE(message(Interpolant({}), {.method = SdeMethod::heun, .last = LastStep::none}).find("at t = 1"),
            std::string::npos);
  EXPECT_EQ(message(Interpolant({.path = PathKind::vp}), {.form = DiffusionForm::sbdm}), "no error");
  EXPECT_NE(message(Interpolant({}), {.last_size = 1.5}).find("must be above 0 and below 1"),
            std::string::npos);
  EXPECT_THROW(Interpolant({.weight = LossWeight::velocity}), Error);
}

}  // namespace
}  // namespace tessera::diffusion
