#include "diffusion/discrete_sampler.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "core/error.h"
#include "core/text.h"

namespace tessera::diffusion {
namespace {

// The clean image and the noise that the network's output implies for x = alpha * clean + sigma * noise.
struct Estimate {
  torch::Tensor clean, noise;
};
Estimate estimate(Prediction prediction, const torch::Tensor& output, const torch::Tensor& x,
                  const Level& at) {
  const torch::Tensor values = output.slice(1, 0, x.size(1));
  switch (prediction) {
    case Prediction::x0:
      return {values, (x - at.alpha * values) / at.sigma};
    case Prediction::v:
      return {at.alpha * x - at.sigma * values, at.alpha * values + at.sigma * x};
    default:
      return {(x - at.sigma * values) / at.alpha, values};
  }
}

// Dynamic thresholding (Saharia et al. 2022): clips to +-s and divides by s, a quantile of the magnitudes.
torch::Tensor thresholded(const torch::Tensor& clean, const DiscreteOptions& options) {
  const torch::Tensor wide = clean.scalar_type() == torch::kFloat64 ? clean : clean.to(torch::kFloat32);
  torch::Tensor s =
      wide.flatten(1).abs().quantile(options.threshold, /*dim=*/1).clamp(1, options.threshold_most);
  s = s.view({-1, 1, 1, 1});
  return (torch::minimum(torch::maximum(wide, -s), s) / s).to(clean.scalar_type());
}

Level of_alpha(double alphas_cumprod) { return {std::sqrt(alphas_cumprod), std::sqrt(1 - alphas_cumprod)}; }
// For sigma in units of the clean image.
Level of_sigma(double sigma) {
  const double alpha = 1 / std::sqrt(1 + sigma * sigma);
  return {alpha, sigma * alpha};
}

// --- the chain

class Ddpm final : public Sampler {
 public:
  Ddpm(const Schedule& schedule, const GaussianOptions& network, const DiscreteOptions& options)
      : diffusion_(schedule.respaced(respace(schedule.steps(), options.respacing.empty()
                                                                   ? std::to_string(options.steps)
                                                                   : options.respacing)),
                   network),
        clip_(options.clip) {
    if (clip_ != 0 && clip_ != 1) fail_usage("clip = ", clip_, ": ddpm clips images to 1, or not at all (0)");
  }
  int64_t steps() const override { return diffusion_.schedule().steps(); }
  bool draws_noise() const override { return true; }
  Level level(int64_t step) const override {
    if (step == steps()) return {};
    return of_alpha(diffusion_.schedule().alphas_cumprod[static_cast<size_t>(steps() - 1 - step)]);
  }
  torch::Tensor run(const Network& network, const torch::Tensor& start, const Walk& walk) const override {
    torch::Tensor x = start;
    for (int64_t step = walk.first; step < steps(); ++step) {
      const int64_t t = steps() - 1 - step;
      const torch::Tensor output = network(
          x, time_of(static_cast<double>(diffusion_.schedule().timestep_map[static_cast<size_t>(t)]), x));
      const torch::Tensor index = torch::full({x.size(0)}, t, x.options().dtype(torch::kInt64));
      const torch::Tensor noise = t > 0 ? walk.noise(step) : torch::zeros_like(x);
      x = diffusion_.ancestral_step(output, x, index, noise, clip_ > 0);
      finish_step(walk, step, steps(), x);
    }
    return x;
  }

 private:
  GaussianDiffusion diffusion_;
  double clip_;
};

// --- DDIM

class Ddim final : public Sampler {
 public:
  Ddim(const std::vector<double>& alphas, Prediction prediction, const DiscreteOptions& options)
      : prediction_(prediction), options_(options) {
    const auto total = static_cast<int64_t>(alphas.size()), stride = total / options.steps;
    times_ = ddim_steps(total, options);
    const double end = options.alpha_one_at_end ? 1 : alphas.front();
    for (const int64_t t : times_) {
      if (t < 0 || t >= total)
        fail_usage("ddim needs step ", t, " of a schedule of ", total,
                   ": take fewer steps, or another spacing");
      alphas_.push_back(alphas[static_cast<size_t>(t)]);
      next_.push_back(t - stride >= 0 ? alphas[static_cast<size_t>(t - stride)] : end);
    }
    if (options.next_level == NextLevel::diffusers) return;
    std::copy(alphas_.begin() + 1, alphas_.end(), next_.begin());
    next_.back() = end;
  }
  int64_t steps() const override { return static_cast<int64_t>(times_.size()); }
  bool draws_noise() const override { return options_.eta > 0; }
  Level level(int64_t step) const override {
    return of_alpha(step < steps() ? alphas_[static_cast<size_t>(step)] : next_.back());
  }
  torch::Tensor run(const Network& network, const torch::Tensor& start, const Walk& walk) const override {
    torch::Tensor x = start;
    for (int64_t step = walk.first; step < steps(); ++step) {
      const auto i = static_cast<size_t>(step);
      const double left = alphas_[i], before = next_[i];
      Estimate e =
          estimate(prediction_, network(x, time_of(static_cast<double>(times_[i]), x)), x, of_alpha(left));
      if (options_.threshold > 0)
        e.clean = thresholded(e.clean, options_);
      else if (options_.clip > 0)
        e.clean = e.clean.clamp(-options_.clip, options_.clip);
      if (options_.noise_of_clean) e.noise = (x - std::sqrt(left) * e.clean) / std::sqrt(1 - left);
      const double variance = (1 - before) / (1 - left) * (1 - left / before);
      const double deviation = options_.eta * std::sqrt(std::max(variance, 0.0));
      x = std::sqrt(before) * e.clean +
          std::sqrt(std::max(1 - before - deviation * deviation, 0.0)) * e.noise;
      if (options_.eta > 0) x = x + deviation * walk.noise(step);
      finish_step(walk, step, steps(), x);
    }
    return x;
  }

  // Inverts a step: solves x_before = sqrt(before) clean + sqrt(1 - before) noise for x_t, where the network
  // gives both at x_t. Uses fixed-point iteration from x_before.
  torch::Tensor walk_back(const Network& network, const torch::Tensor& result,
                          const Walk& walk) const override {
    if (draws_noise()) return Sampler::walk_back(network, result, walk);
    constexpr int kRounds = 2;
    torch::Tensor x = result;
    for (int64_t step = steps() - 1; step >= walk.first; --step) {
      const auto i = static_cast<size_t>(step);
      const Level at = of_alpha(alphas_[i]), before = of_alpha(next_[i]);
      const torch::Tensor behind = x;
      for (int round = 0; round < kRounds; ++round) {
        const torch::Tensor noise =
            estimate(prediction_, network(x, time_of(static_cast<double>(times_[i]), x)), x, at).noise;
        x = at.alpha * ((behind - before.sigma * noise) / before.alpha) + at.sigma * noise;
      }
      finish_step(walk, step, steps(), x);
    }
    return x;
  }

 private:
  Prediction prediction_;
  DiscreteOptions options_;
  std::vector<int64_t> times_;
  std::vector<double> alphas_, next_;
};

// --- DPM-Solver and DPM-Solver++

class DpmSolver final : public Sampler {
 public:
  DpmSolver(const std::vector<double>& alphas, ScheduleKind kind, Prediction prediction,
            const DiscreteOptions& options)
      : prediction_(prediction), options_(options), plan_(plan_sigmas(alphas, kind, options)) {}
  int64_t steps() const override { return static_cast<int64_t>(plan_.times.size()); }
  bool draws_noise() const override { return options_.method == Method::dpm_sde; }
  Level level(int64_t step) const override { return of_sigma(plan_.sigmas[static_cast<size_t>(step)]); }

  torch::Tensor run(const Network& network, const torch::Tensor& start, const Walk& walk) const override {
    torch::Tensor x = start;
    std::vector<torch::Tensor> known;  // previous predictions, newest last
    for (int64_t step = walk.first; step < steps(); ++step) {
      const double time = plan_.times[static_cast<size_t>(step)];
      known.push_back(predicted(network(x, time_of(time, x)), x, step));
      if (known.size() > 3) known.erase(known.begin());
      const int64_t order = order_at(step, step - walk.first);
      x = of_noise() ? advance_noise(x, known, step, order) : advance(x, known, step, order);
      if (draws_noise()) x = x + noise_scale(step) * walk.noise(step);
      finish_step(walk, step, steps(), x);
    }
    return x;
  }

 private:
  // log(alpha / sigma): infinite without noise.
  double lambda(int64_t step) const { return -std::log(plan_.sigmas[static_cast<size_t>(step)]); }
  double gap(int64_t step) const { return lambda(step + 1) - lambda(step); }
  bool of_noise() const { return options_.solver_of == SolverOf::noise; }

  torch::Tensor predicted(const torch::Tensor& output, const torch::Tensor& x, int64_t step) const {
    const Level at = level(step);
    Estimate e = estimate(prediction_, output, x, at);
    if (options_.threshold > 0) {
      e.clean = thresholded(e.clean, options_);
      if (of_noise()) e.noise = (x - at.alpha * e.clean) / at.sigma;
    }
    return of_noise() ? e.noise : e.clean;
  }

  int64_t order_at(int64_t step, int64_t known) const {
    const bool few = options_.lower_order_final && steps() < 15;
    const bool last =
        step == steps() - 1 && (few || options_.euler_at_final || options_.final_sigma == FinalSigma::zero);
    if (last || known < 1) return 1;
    if (known < 2 || (few && step == steps() - 2)) return std::min<int64_t>(options_.order, 2);
    return options_.order;
  }

  double noise_scale(int64_t step) const {
    const double h = gap(step);
    return level(step + 1).sigma * std::sqrt(of_noise() ? std::expm1(2 * h) : -std::expm1(-2 * h));
  }

  // First and second differences over lambda of the predictions so far.
  struct Differences {
    torch::Tensor first, second, last;  // first, second: for a parabola; last: between the newest two
  };
  Differences differences(const std::vector<torch::Tensor>& known, int64_t step, int64_t order) const {
    const double h = gap(step), r0 = gap(step - 1) / h;
    const torch::Tensor& before = known[known.size() - 2];
    Differences out;
    out.last = (known.back() - before) / r0;
    if (order < 3) return out;
    const double r1 = gap(step - 2) / h;
    const torch::Tensor earlier = (before - known[known.size() - 3]) / r1;
    out.first = out.last + r0 / (r0 + r1) * (out.last - earlier);
    out.second = (out.last - earlier) / (r0 + r1);
    return out;
  }

  // Solves the linear part exactly; the noise is approximated by a polynomial of that order in lambda.
  torch::Tensor advance_noise(const torch::Tensor& x, const std::vector<torch::Tensor>& noise, int64_t step,
                              int64_t order) const {
    const Level from = level(step), to = level(step + 1);
    const double h = gap(step), grows = std::expm1(h), weight = to.sigma * (draws_noise() ? 2 : 1);
    const torch::Tensor next = to.alpha / from.alpha * x - weight * grows * noise.back();
    if (order == 1) return next;
    const double first = grows / h - 1, second = (grows - h) / (h * h) - 0.5;
    const Differences d = differences(noise, step, order);
    if (order == 2)
      return next - weight * (options_.form == SolverForm::midpoint ? 0.5 * grows : first) * d.last;
    return next - weight * first * d.first - weight * second * d.second;
  }

  // Solves the linear part exactly; the clean image is approximated by a polynomial of that order in lambda.
  torch::Tensor advance(const torch::Tensor& x, const std::vector<torch::Tensor>& clean, int64_t step,
                        int64_t order) const {
    const Level from = level(step), to = level(step + 1);
    const double h = gap(step), k = draws_noise() ? 2 : 1;  // the stochastic equation decays twice as fast
    const double forgets = std::expm1(-k * h);              // exp(-k h) - 1
    double keeps = to.sigma / from.sigma;
    if (draws_noise()) keeps *= std::exp(-h);
    const torch::Tensor next = keeps * x - to.alpha * forgets * clean.back();
    if (order == 1) return next;
    // phi functions of the first and second difference.
    const double first = forgets / (k * h) + 1;
    const Differences d = differences(clean, step, order);
    if (order == 2)
      return next + to.alpha * (options_.form == SolverForm::midpoint ? -0.5 * forgets : first) * d.last;
    // The series subtracts one half; like diffusers, this adds it instead if noise is drawn.
    const double second = (forgets + k * h) / (k * h * k * h) + (draws_noise() ? 0.5 : -0.5);
    return next + to.alpha * first * d.first - to.alpha * second * d.second;
  }

  Prediction prediction_;
  DiscreteOptions options_;
  SigmaPlan plan_;
};

// --- samplers of x = clean + sigma * noise

class SigmaSampler final : public Sampler {
 public:
  SigmaSampler(const std::vector<double>& alphas, ScheduleKind kind, Prediction prediction,
               const DiscreteOptions& options)
      : prediction_(prediction), options_(options), plan_(plan_sigmas(alphas, kind, options)) {}
  int64_t steps() const override { return static_cast<int64_t>(plan_.times.size()); }
  bool draws_noise() const override { return options_.method == Method::euler_ancestral; }
  // As published, a leading spacing starts with the standard deviation of image plus noise.
  Level level(int64_t step) const override {
    const double sigma = plan_.sigmas[static_cast<size_t>(step)];
    if (step == 0 && options_.spacing == Spacing::leading) return {1, std::sqrt(sigma * sigma + 1)};
    return {1, sigma};
  }
  double start_scale() const override { return level(0).sigma; }

  torch::Tensor run(const Network& network, const torch::Tensor& start, const Walk& walk) const override {
    torch::Tensor x = start;
    for (int64_t step = walk.first; step < steps(); ++step) {
      const double sigma = plan_.sigmas[static_cast<size_t>(step)],
                   next = plan_.sigmas[static_cast<size_t>(step + 1)];
      const torch::Tensor slope = slope_at(network, x, step);
      if (options_.method == Method::euler_ancestral) {
        const double drawn =
            std::min(next, std::sqrt(next * next * (sigma * sigma - next * next) / (sigma * sigma)));
        x = x + slope * (std::sqrt(next * next - drawn * drawn) - sigma) + walk.noise(step) * drawn;
      } else if (options_.method == Method::heun && next > 0) {
        const torch::Tensor ahead = x + slope * (next - sigma);
        x = x + (slope + slope_at(network, ahead, step + 1)) / 2 * (next - sigma);
      } else {
        x = x + slope * (next - sigma);
      }
      finish_step(walk, step, steps(), x);
    }
    return x;
  }

 private:
  // Returns dx / dsigma: the noise in x at the level before a step. The network gets x with variance 1.
  torch::Tensor slope_at(const Network& network, const torch::Tensor& x, int64_t step) const {
    const double sigma = plan_.sigmas[static_cast<size_t>(step)];
    // Heun evaluates after the last step only if the final sigma is not 0; that is step 0 of the schedule.
    const double time = step < steps() ? plan_.times[static_cast<size_t>(step)] : 0;
    const Level at = of_sigma(sigma);
    const torch::Tensor seen = x * at.alpha;
    Estimate e = estimate(prediction_, network(seen, time_of(time, x)), seen, at);
    if (options_.clip > 0) e.clean = e.clean.clamp(-options_.clip, options_.clip);
    return (x - e.clean) / sigma;
  }

  Prediction prediction_;
  DiscreteOptions options_;
  SigmaPlan plan_;
};

}  // namespace

namespace {

// Throws a usage error for options of another method, which would otherwise be ignored.
void check_method(const DiscreteOptions& options) {
  const Method method = options.method;
  const auto only = [&](bool asked, const char* what, std::initializer_list<Method> methods) {
    if (!asked || std::find(methods.begin(), methods.end(), method) != methods.end()) return;
    std::vector<std::string> names;
    for (const Method one : methods) names.push_back(name_of(one));
    fail_usage(what, " goes with the sampler", names.size() > 1 ? "s " : " ", join(names, ", "), ", not ",
               name_of(method));
  };
  using enum Method;
  only(options.eta > 0, "eta", {ddim});
  only(options.sigmas != SigmaSpacing::schedule, "a spacing of sigmas", {dpm, dpm_sde, euler, heun});
  only(options.sigmas == SigmaSpacing::log_snr || options.solver_of == SolverOf::noise ||
           options.least_log_snr > -DiscreteOptions::kUnbounded,
       "log_snr, solver_of or least_log_snr", {dpm, dpm_sde});
  only(options.log_linear || options.log_time, "log_linear or log_time", {euler});
  only(options.threshold > 0, "threshold", {ddim, dpm, dpm_sde});
  only(options.clip > 0, "clip", {ddpm, ddim, heun});
  if (!(options.threshold >= 0 && options.threshold <= 1))
    fail_usage("threshold = ", options.threshold, ", must be 0 to 1");
  if (!(options.threshold_most >= 1))
    fail_usage("threshold_most = ", options.threshold_most, ", must be at least 1");
  if (options.solver_of == SolverOf::noise && options.final_sigma == FinalSigma::zero)
    fail_usage("a solver of the noise cannot end without any: final_sigma must be minimum");
}

}  // namespace

std::unique_ptr<Sampler> make_discrete_sampler(const ScheduleOptions& schedule_options,
                                               const GaussianOptions& network,
                                               const DiscreteOptions& options) {
  const std::vector<double> betas = make_betas(schedule_options);
  const auto total = static_cast<int64_t>(betas.size());
  if (options.steps < 1 || options.steps > total)
    fail_usage("steps = ", options.steps, ", must be 1 to ", total,
               ": the schedule that the model was trained on");
  if (options.order < 1 || options.order > 3) fail_usage("order = ", options.order, ", must be 1 to 3");
  if (!(options.eta >= 0)) fail_usage("eta = ", options.eta, ", must be at least 0");
  check_method(options);
  const std::vector<double> alphas = cumulative_alphas(betas);
  if (-std::log(std::sqrt(1 / alphas.front() - 1)) < options.least_log_snr)
    fail_usage("least_log_snr = ", options.least_log_snr, " leaves out every step of the schedule");
  if (alphas.back() <= 0 && network.prediction == Prediction::epsilon)
    fail_usage("a schedule that ends without any image needs predictions of v or x0, not epsilon");
  switch (options.method) {
    case Method::ddpm:
      return std::make_unique<Ddpm>(Schedule(betas), network, options);
    case Method::ddim:
      return std::make_unique<Ddim>(alphas, network.prediction, options);
    case Method::dpm:
    case Method::dpm_sde:
      return std::make_unique<DpmSolver>(alphas, schedule_options.kind, network.prediction, options);
    default:
      return std::make_unique<SigmaSampler>(alphas, schedule_options.kind, network.prediction, options);
  }
}

}  // namespace tessera::diffusion
