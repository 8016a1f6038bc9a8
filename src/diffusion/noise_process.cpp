#include "diffusion/noise_process.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace tessera::diffusion {
namespace {

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

const diffusion::SamplerRow& NoiseProcess::row(const SamplerConfig& config) const {
  const auto kind = diffusion_ ? diffusion::ProcessKind::diffusion : diffusion::ProcessKind::interpolant;
  return diffusion::sampler_row(kind, config.sampler);
}

SamplerConfig NoiseProcess::resolved(const SamplerConfig& config, bool pixels) const {
  const diffusion::SamplerRow& one = row(config);
  SamplerConfig out = config;
  out.sampler = one.name;
  if (out.respacing.value_or("").empty()) out.respacing.reset();
  if (!out.steps && !out.respacing && one.reads_key("steps")) out.steps = most_steps(one.steps);
  if (!out.clip) out.clip = pixels && one.clips_pixels && out.threshold.value_or(0) == 0 ? 1 : 0;
  return out;
}

std::unique_ptr<diffusion::Sampler> NoiseProcess::sampler(const SamplerConfig& asked) const {
  const diffusion::SamplerRow& one = row(asked);
  const SamplerConfig config = resolved(asked);
  diffusion::refuse_unread(one, config);
  if (interpolant_) return one.make({.interpolant = &*interpolant_}, config);
  return one.make({.schedule = schedule(), .network = diffusion_->options()}, config);
}

}  // namespace tessera::diffusion
