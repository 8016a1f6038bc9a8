#include "diffusion/interpolant_sampler.h"

#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace tessera::diffusion {
namespace {

double value_of(const torch::Tensor& scalar) { return scalar.item<double>(); }

Level level_at(const Path& path, double time) {
  const torch::Tensor t = torch::tensor(time, torch::kFloat64);
  return {value_of(path.alpha(t)), value_of(path.sigma(t))};
}

std::vector<double> grid(const Interpolant::Interval& interval, int64_t points) {
  std::vector<double> times;
  for (int64_t i = 0; i < points; ++i)
    times.push_back(interval.from + (interval.to - interval.from) * static_cast<double>(i) /
                                        static_cast<double>(std::max<int64_t>(points - 1, 1)));
  return times;
}

void check_points(int64_t points) {
  if (points < 2 || points > 1'000'000)
    fail_usage("steps = ", points, ", must be 2 to 1000000 points of the grid");
}

// --- Dormand & Prince (1980) with adaptive steps for each sample

constexpr double kNodes[6] = {1.0 / 5, 3.0 / 10, 4.0 / 5, 8.0 / 9, 1, 1};
constexpr double kStages[6][6] = {{1.0 / 5},
                                  {3.0 / 40, 9.0 / 40},
                                  {44.0 / 45, -56.0 / 15, 32.0 / 9},
                                  {19372.0 / 6561, -25360.0 / 2187, 64448.0 / 6561, -212.0 / 729},
                                  {9017.0 / 3168, -355.0 / 33, 46732.0 / 5247, 49.0 / 176, -5103.0 / 18656},
                                  {35.0 / 384, 0, 500.0 / 1113, 125.0 / 192, -2187.0 / 6784, 11.0 / 84}};
// Fifth order minus fourth order.
constexpr double kError[7] = {35.0 / 384 - 5179.0 / 57600,
                              0,
                              500.0 / 1113 - 7571.0 / 16695,
                              125.0 / 192 - 393.0 / 640,
                              -2187.0 / 6784 + 92097.0 / 339200,
                              11.0 / 84 - 187.0 / 2100,
                              -1.0 / 40};
constexpr double kSafety = 0.9, kGrow = 10, kShrink = 0.2;
constexpr int64_t kMostSolverSteps = 100'000;

torch::Tensor root_mean_square(const torch::Tensor& x) { return x.flatten(1).square().mean(1).sqrt(); }

class DormandPrince {
 public:
  DormandPrince(const Slope& slope, const OdeOptions& options) : slope_(slope), options_(options) {}

  torch::Tensor run(torch::Tensor x, double t0, double t1) {
    const double length = std::abs(t1 - t0);
    if (length == 0) return x;
    sign_ = t1 > t0 ? 1 : -1;
    const auto times = torch::TensorOptions().dtype(torch::kFloat64).device(x.device());
    torch::Tensor t = torch::full({x.size(0)}, t0, times);
    torch::Tensor k = slope_(x, t);
    torch::Tensor h = first_step(x, t, k).to(torch::kFloat64).clamp_max(length);
    for (int64_t step = 0; step < kMostSolverSteps; ++step) {
      const torch::Tensor left = (t1 - t) * sign_;
      const torch::Tensor going = left > 1e-12 * length;
      if (!going.any().item<bool>()) return x;
      h = torch::minimum(h, left.clamp_min(0));
      const auto [next, last, error] = attempt(x, t, k, h * sign_);
      const torch::Tensor finite = error.isfinite();
      if (!finite.all().item<bool>())
        fail("sampler dopri5: sample ", (~finite).nonzero()[0].item<int64_t>(),
             " of the batch is not finite at t = ", t[(~finite).nonzero()[0].item<int64_t>()].item<double>());
      const torch::Tensor taken = going & (error <= 1);
      const torch::Tensor wide = taken.view(wide_shape(x));
      x = torch::where(wide, next, x);
      k = torch::where(wide, last, k);
      t = torch::where(taken, t + h * sign_, t);
      const torch::Tensor factor = (kSafety * error.clamp_min(1e-10).pow(-0.2)).clamp(kShrink, kGrow);
      h = torch::where(going, h * torch::where(taken, factor.clamp_min(1), factor), h);
    }
    fail("sampler dopri5: no end after ", kMostSolverSteps,
         " steps: the tolerances are too small for this model");
  }

 private:
  static std::vector<int64_t> wide_shape(const torch::Tensor& x) {
    std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
    shape.front() = x.size(0);
    return shape;
  }

  struct Attempt {
    torch::Tensor x, slope, error;
  };
  Attempt attempt(const torch::Tensor& x, const torch::Tensor& t, const torch::Tensor& k0,
                  const torch::Tensor& h) {
    const torch::Tensor wide = beside(h, x);
    std::vector<torch::Tensor> k{k0};
    torch::Tensor y;
    for (size_t stage = 0; stage < 6; ++stage) {
      torch::Tensor sum = kStages[stage][0] * k[0];
      for (size_t i = 1; i <= stage; ++i)
        if (kStages[stage][i] != 0) sum = sum + kStages[stage][i] * k[i];
      y = x + wide * sum;
      k.push_back(slope_(y, t + kNodes[stage] * h));
    }
    torch::Tensor wrong = kError[0] * k[0];
    for (size_t i = 2; i < 7; ++i) wrong = wrong + kError[i] * k[i];
    const torch::Tensor allowed = options_.absolute + options_.relative * torch::maximum(x.abs(), y.abs());
    return {y, k.back(), root_mean_square(wide * wrong / allowed).to(torch::kFloat64)};
  }

  // Hairer, Norsett & Wanner 1993, II.4.
  torch::Tensor first_step(const torch::Tensor& x, const torch::Tensor& t, const torch::Tensor& k) {
    const torch::Tensor allowed = options_.absolute + options_.relative * x.abs();
    const torch::Tensor d0 = root_mean_square(x / allowed), d1 = root_mean_square(k / allowed);
    const torch::Tensor h0 =
        torch::where((d0 < 1e-5) | (d1 < 1e-5), torch::full_like(d0, 1e-6), 0.01 * d0 / d1);
    const torch::Tensor k1 = slope_(x + beside(h0, x) * sign_ * k, t + h0.to(torch::kFloat64) * sign_);
    const torch::Tensor d2 = root_mean_square((k1 - k) / allowed) / h0;
    const torch::Tensor most = torch::maximum(d1, d2);
    const torch::Tensor h1 =
        torch::where(most <= 1e-15, (h0 * 1e-3).clamp_min(1e-6), (0.01 / most).pow(1.0 / 5));
    return torch::minimum(100 * h0, h1);
  }

  const Slope& slope_;
  const OdeOptions& options_;
  double sign_ = 1;
};

// --- samplers

class OdeSampler final : public Sampler {
 public:
  OdeSampler(const Interpolant& interpolant, const OdeOptions& options)
      : interpolant_(interpolant),
        options_(options),
        times_(grid(interpolant.ode_interval(), options.points)) {}
  int64_t steps() const override { return std::ssize(times_) - 1; }
  bool draws_noise() const override { return false; }
  Level level(int64_t step) const override {
    return level_at(interpolant_.path(), times_[static_cast<size_t>(step)]);
  }
  torch::Tensor run(const Network& network, const torch::Tensor& start, const Walk& walk) const override {
    const Slope slope = slope_of(network);
    torch::Tensor x = start;
    for (int64_t step = walk.first; step < steps(); ++step) {
      const auto i = static_cast<size_t>(step);
      x = integrate(slope, x, times_[i], times_[i + 1], options_);
      finish_step(walk, step, steps(), x);
    }
    return x;
  }
  torch::Tensor walk_back(const Network& network, const torch::Tensor& result,
                          const Walk& walk) const override {
    const Slope slope = slope_of(network);
    torch::Tensor x = result;
    for (int64_t step = steps() - 1; step >= walk.first; --step) {
      const auto i = static_cast<size_t>(step);
      x = integrate(slope, x, times_[i + 1], times_[i], options_);
      finish_step(walk, step, steps(), x);
    }
    return x;
  }

 private:
  Slope slope_of(const Network& network) const {
    return [this, &network](const torch::Tensor& x, const torch::Tensor& t) {
      return interpolant_.velocity(network(x, t), x, t);
    };
  }

  Interpolant interpolant_;
  OdeOptions options_;
  std::vector<double> times_;
};

class SdeSampler final : public Sampler {
 public:
  SdeSampler(const Interpolant& interpolant, const SdeOptions& options)
      : interpolant_(interpolant),
        options_(options),
        end_(options.last == LastStep::none ? 0 : options.last_size),
        times_(grid(interpolant.sde_interval(options.form, end_), options.points)) {}
  // The last step counts as a step even if it does nothing.
  int64_t steps() const override { return std::ssize(times_); }
  bool draws_noise() const override { return true; }
  Level level(int64_t step) const override {
    if (step < steps()) return level_at(interpolant_.path(), times_[static_cast<size_t>(step)]);
    return options_.last == LastStep::none ? level_at(interpolant_.path(), times_.back()) : Level{};
  }

  torch::Tensor run(const Network& network, const torch::Tensor& start, const Walk& walk) const override {
    torch::Tensor x = start;
    for (int64_t step = walk.first; step < steps(); ++step) {
      const double time = times_[static_cast<size_t>(step)];
      x = step + 1 < steps() ? forward(network, x, time, times_[1] - times_[0], walk.noise(step))
                             : last_step(network, x, time);
      finish_step(walk, step, steps(), x);
    }
    return x;
  }

 private:
  torch::Tensor coefficient(const torch::Tensor& t, const torch::Tensor& x) const {
    return interpolant_.path().diffusion(beside(t, x), options_.form, options_.norm);
  }
  // v + w s.
  torch::Tensor drift(const Network& network, const torch::Tensor& x, double time) const {
    const torch::Tensor t = time_of(time, x), output = network(x, t);
    return interpolant_.velocity(output, x, t) + coefficient(t, x) * interpolant_.score(output, x, t);
  }
  torch::Tensor forward(const Network& network, const torch::Tensor& x, double time, double dt,
                        const torch::Tensor& noise) const {
    const torch::Tensor moved = torch::sqrt(2 * coefficient(time_of(time, x), x)) * std::sqrt(dt) * noise;
    if (options_.method == SdeMethod::euler) return x + drift(network, x, time) * dt + moved;
    const torch::Tensor shaken = x + moved, k1 = drift(network, shaken, time),
                        k2 = drift(network, shaken + dt * k1, time + dt);
    return shaken + 0.5 * dt * (k1 + k2);
  }
  torch::Tensor last_step(const Network& network, const torch::Tensor& x, double time) const {
    const torch::Tensor t = time_of(time, x);
    switch (options_.last) {
      case LastStep::none:
        return x;
      case LastStep::mean:
        return x + drift(network, x, time) * options_.last_size;
      case LastStep::euler:
        return x + interpolant_.velocity(network(x, t), x, t) * options_.last_size;
      default: {
        const Level at = level_at(interpolant_.path(), time);
        return x / at.alpha + at.sigma * at.sigma / at.alpha * interpolant_.score(network(x, t), x, t);
      }
    }
  }

  Interpolant interpolant_;
  SdeOptions options_;
  double end_;
  std::vector<double> times_;
};

}  // namespace

torch::Tensor integrate(const Slope& slope, const torch::Tensor& x, double t0, double t1,
                        const OdeOptions& options) {
  if (options.method == OdeMethod::dopri5) return DormandPrince(slope, options).run(x, t0, t1);
  const double dt = t1 - t0;
  const torch::Tensor k1 = slope(x, time_of(t0, x));
  if (options.method == OdeMethod::euler) return x + dt * k1;
  return x + 0.5 * dt * (k1 + slope(x + dt * k1, time_of(t1, x)));
}

std::unique_ptr<Sampler> make_ode_sampler(const Interpolant& interpolant, const OdeOptions& options) {
  check_points(options.points);
  if (!(options.absolute > 0) || !(options.relative >= 0))
    fail_usage("tolerances ", options.absolute, " and ", options.relative, ", must be above 0");
  return std::make_unique<OdeSampler>(interpolant, options);
}

std::unique_ptr<Sampler> make_sde_sampler(const Interpolant& interpolant, const SdeOptions& options) {
  check_points(options.points);
  if (!(options.last_size > 0 && options.last_size < 1))
    fail_usage("last step ", options.last_size, ", must be above 0 and below 1");
  if (!(options.norm > 0)) fail_usage("diffusion norm ", options.norm, ", must be above 0");
  const auto interval =
      interpolant.sde_interval(options.form, options.last == LastStep::none ? 0 : options.last_size);
  if (options.form == DiffusionForm::sbdm && interval.from == 0 && interpolant.path().kind() != PathKind::vp)
    fail_usage("the diffusion form sbdm divides by zero at t = 0 on the path ",
               name_of(interpolant.path().kind()), ": choose another, such as sigma");
  // A score derived from a velocity divides by sigma at the last point of the grid. The last step and Heun's
  // second stage evaluate it there.
  const bool asks_at_end = options.last != LastStep::none || options.method == SdeMethod::heun;
  if (interval.to >= 1 && asks_at_end)
    fail_usage("the stochastic equation divides by zero at t = 1: choose a last step other than none");
  return std::make_unique<SdeSampler>(interpolant, options);
}

torch::Tensor ode_bits(const Interpolant& interpolant, const Network& network, const torch::Tensor& images,
                       const torch::Tensor& signs, const OdeOptions& options) {
  const auto dimensions = static_cast<double>(images[0].numel());
  // The state is the image followed by its log density: [batch, dimensions + 1].
  const auto image_of = [&](const torch::Tensor& state) {
    return state.slice(1, 0, -1).reshape(images.sizes());
  };
  const Slope slope = [&](const torch::Tensor& state, const torch::Tensor& t) {
    const torch::AutoGradMode with_gradients(true);
    const torch::Tensor x = image_of(state).detach().requires_grad_();
    const torch::Tensor velocity = interpolant.velocity(network(x, t), x, t);
    const torch::Tensor gradient = torch::autograd::grad({(velocity * signs).sum()}, {x})[0];
    const torch::Tensor trace = (gradient * signs).flatten(1).sum(1, /*keepdim=*/true);
    return torch::cat({velocity.detach().flatten(1), trace}, 1);
  };
  torch::Tensor state =
      torch::cat({images.flatten(1), torch::zeros({images.size(0), 1}, images.options())}, 1);
  // d log p(x_t) / dt = -trace: log p_1(x_1) = log p_0(x_0) - the trace integrated from 0 to 1.
  const auto interval = interpolant.ode_interval();
  for (int64_t i = options.points - 1; i > 0; --i) {
    const std::vector<double> times = grid(interval, options.points);
    state =
        integrate(slope, state, times[static_cast<size_t>(i)], times[static_cast<size_t>(i - 1)], options);
  }
  const torch::Tensor noise = state.slice(1, 0, -1), gathered = -state.select(1, -1);
  const torch::Tensor prior =
      -0.5 * noise.square().sum(1) - 0.5 * dimensions * std::log(2 * std::numbers::pi);
  return -(prior - gathered) / (dimensions * std::numbers::ln2);
}

}  // namespace tessera::diffusion
