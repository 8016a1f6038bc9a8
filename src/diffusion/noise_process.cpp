#include "diffusion/noise_process.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace tessera::diffusion {
namespace {

const std::vector<SamplerName> kOfDiffusion = {
    SamplerName::ddpm,     SamplerName::ddim,         SamplerName::dpmpp, SamplerName::dpmpp_2m,
    SamplerName::dpmpp_3m, SamplerName::dpmpp_2m_sde, SamplerName::euler, SamplerName::euler_ancestral,
    SamplerName::heun};
const std::vector<SamplerName> kOfInterpolants = {SamplerName::dopri5, SamplerName::heun, SamplerName::euler,
                                                  SamplerName::sde, SamplerName::sde_heun};

std::string list_of(const std::vector<SamplerName>& samplers) {
  std::vector<std::string> names;
  for (const SamplerName one : samplers) names.push_back(name_of(one));
  return join(names, ", ");
}

diffusion::DiscreteOptions discrete_options(const SamplerConfig& config) {
  diffusion::DiscreteOptions options{
      .steps = config.steps,
      .respacing = config.respacing,
      .eta = config.eta,
      .spacing = config.spacing,
      .sigmas = config.karras ? diffusion::SigmaSpacing::karras : diffusion::SigmaSpacing::schedule,
      .clip = config.clip,
      .threshold = config.threshold};
  switch (config.sampler) {
    case SamplerName::ddim:
      options.method = Method::ddim;
      break;
    case SamplerName::dpmpp:
    case SamplerName::dpmpp_2m:
    case SamplerName::dpmpp_3m:
      options.method = Method::dpm;
      options.order = config.sampler == SamplerName::dpmpp      ? 1
                      : config.sampler == SamplerName::dpmpp_2m ? 2
                                                                : 3;
      break;
    case SamplerName::dpmpp_2m_sde:
      options.method = Method::dpm_sde;
      break;
    case SamplerName::euler:
      options.method = Method::euler;
      break;
    case SamplerName::euler_ancestral:
      options.method = Method::euler_ancestral;
      break;
    case SamplerName::heun:
      options.method = Method::heun;
      break;
    default:
      options.method = Method::ddpm;
  }
  return options;
}

// The published code lets networks of a velocity start at t = 0, where the coefficient of sbdm is infinite.
// This starts them as late as networks of score and noise.
diffusion::Interpolant stochastic(const diffusion::Interpolant& interpolant, diffusion::DiffusionForm form) {
  constexpr double kSampleEnd = 1e-3;
  diffusion::InterpolantOptions options = interpolant.options();
  if (form == diffusion::DiffusionForm::sbdm) options.sample_end = std::max(options.sample_end, kSampleEnd);
  return diffusion::Interpolant(options);
}

diffusion::PathKind path_of(Process process) {
  return process == Process::vp    ? diffusion::PathKind::vp
         : process == Process::gvp ? diffusion::PathKind::gvp
                                   : diffusion::PathKind::linear;
}

}  // namespace

void refuse_unread_keys(const ProcessConfig& config) {
  const ProcessConfig standard;
  const bool diffusion = config.process == Process::diffusion;
  struct Key {
    const char* name;
    bool set, of_diffusion;
  };
  const Key keys[] = {{"schedule", config.schedule != standard.schedule, true},
                      {"steps", config.steps != standard.steps, true},
                      {"beta_start", config.beta_start != standard.beta_start, true},
                      {"beta_end", config.beta_end != standard.beta_end, true},
                      {"zero_terminal_snr", config.zero_terminal_snr, true},
                      {"predict", config.predict != standard.predict, true},
                      {"min_snr", config.min_snr != standard.min_snr, true},
                      {"field", config.field != standard.field, false},
                      {"loss_weight", config.loss_weight != standard.loss_weight, false}};
  for (const Key& key : keys)
    if (key.set && key.of_diffusion != diffusion)
      fail_usage("task.", key.name, " is for ", key.of_diffusion ? "diffusion" : "interpolants",
                 " only, but task.process = \"", name_of(config.process), "\": must be left out");
}

bool takes_own_steps(SamplerName sampler) { return sampler == SamplerName::dopri5; }

void require_counted_steps(SamplerName sampler, int64_t steps) {
  const diffusion::OdeOptions standard;
  if (takes_own_steps(sampler))
    fail_usage("steps = ", steps, ": ", name_of(sampler), " takes steps of its own, by its tolerances ",
               standard.absolute, " and ", standard.relative,
               "; must be left out, or the sampler heun or euler");
}

NoiseProcess::NoiseProcess(const ProcessConfig& config, bool learns_sigma) : config_(config) {
  if (config.process == Process::diffusion) {
    if (config.zero_terminal_snr && config.predict == diffusion::Prediction::epsilon)
      fail_usage("task.zero_terminal_snr leaves nothing of the image after the last step: ",
                 "task.predict must be v or x0");
    diffusion_.emplace(diffusion::Schedule(diffusion::make_betas(schedule())),
                       diffusion::GaussianOptions{.prediction = config.predict,
                                                  .variance = learns_sigma ? diffusion::Variance::learned
                                                                           : diffusion::Variance::fixed_large,
                                                  .min_snr_gamma = config.min_snr});
    return;
  }
  if (learns_sigma)
    fail_usage(
        "model.sigma = \"learned\" goes with task.process = \"diffusion\"; an interpolant has no variances: ",
        "must be dropped or none");
  interpolant_.emplace(diffusion::InterpolantOptions{
      .path = path_of(config.process), .field = config.field, .weight = config.loss_weight});
}

diffusion::ScheduleOptions NoiseProcess::schedule() const {
  return {.kind = config_.schedule,
          .steps = config_.steps,
          .beta_start = config_.beta_start,
          .beta_end = config_.beta_end,
          .zero_terminal_snr = config_.zero_terminal_snr};
}

double NoiseProcess::time_of(double uniform) const {
  if (diffusion_) return std::floor(uniform * static_cast<double>(config_.steps));
  const auto interval = interpolant_->training_interval();
  return interval.from + uniform * (interval.to - interval.from);
}

torch::Tensor NoiseProcess::noise_share(const torch::Tensor& time) const {
  if (interpolant_) return 1 - time;
  return time / std::max(1.0, static_cast<double>(config_.steps - 1));
}

torch::Tensor NoiseProcess::noised(const torch::Tensor& clean, const torch::Tensor& noise,
                                   const torch::Tensor& time) const {
  if (interpolant_) return interpolant_->path().noised(clean, noise, time);
  return diffusion_->noised(clean, time.to(torch::kInt64), noise);
}

torch::Tensor NoiseProcess::loss(const torch::Tensor& output, const torch::Tensor& clean,
                                 const torch::Tensor& noise, const torch::Tensor& time) const {
  const torch::Tensor wide = output.scalar_type() == torch::kFloat64 ? output : output.to(torch::kFloat32);
  if (interpolant_) return interpolant_->loss(wide, clean, noise, time);
  return diffusion_->loss(wide, clean, noise, time.to(torch::kInt64)).total;
}

SamplerConfig NoiseProcess::resolved(const SamplerConfig& config) const {
  SamplerConfig out = config;
  if (out.sampler == SamplerName::automatic)
    out.sampler = diffusion_ ? SamplerName::ddpm : SamplerName::dopri5;
  const bool long_walk = out.sampler == SamplerName::ddpm || out.sampler == SamplerName::sde ||
                         out.sampler == SamplerName::sde_heun;
  if (out.steps == 0) out.steps = long_walk ? 250 : 50;
  if (diffusion_) out.steps = config.steps == 0 ? std::min(out.steps, config_.steps) : out.steps;
  return out;
}

std::unique_ptr<diffusion::Sampler> NoiseProcess::sampler(const SamplerConfig& asked) const {
  const SamplerConfig config = resolved(asked);
  const std::vector<SamplerName>& ours = diffusion_ ? kOfDiffusion : kOfInterpolants;
  if (std::find(ours.begin(), ours.end(), config.sampler) == ours.end())
    fail_usage("sampler ", name_of(config.sampler), " is not for ", diffusion_ ? "diffusion" : "interpolants",
               ", by which these weights were trained: must be ", list_of(ours));
  if (!diffusion_ && config.threshold > 0) fail_usage("threshold goes with samplers of diffusion");
  if (diffusion_)
    return diffusion::make_discrete_sampler(schedule(), diffusion_->options(), discrete_options(config));
  if (config.sampler == SamplerName::sde || config.sampler == SamplerName::sde_heun)
    return diffusion::make_sde_sampler(
        stochastic(*interpolant_, config.form),
        {.method =
             config.sampler == SamplerName::sde ? diffusion::SdeMethod::euler : diffusion::SdeMethod::heun,
         .form = config.form,
         .last = config.last_step,
         .last_size = config.last_step_size,
         .points = config.steps});
  // Fixed methods take the requested steps; dopri5 chooses its own, which a fine grid would only split.
  const bool adaptive = takes_own_steps(config.sampler);
  return diffusion::make_ode_sampler(
      *interpolant_, {.method = adaptive                              ? diffusion::OdeMethod::dopri5
                                : config.sampler == SamplerName::heun ? diffusion::OdeMethod::heun
                                                                      : diffusion::OdeMethod::euler,
                      .points = adaptive ? std::min<int64_t>(config.steps, 8) + 1 : config.steps + 1});
}

}  // namespace tessera::diffusion
