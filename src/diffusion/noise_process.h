// Training objective and matching samplers of a denoising network: diffusion over steps
// (diffusion/gaussian.h) or an interpolant over t in [0, 1] (diffusion/interpolant.h), chosen by a recipe's
// keys.
#pragma once

#include "ops/torch.h"

#include <memory>
#include <optional>
#include <string>

#include "core/random.h"
#include "diffusion/discrete_sampler.h"
#include "diffusion/gaussian.h"
#include "diffusion/guidance.h"
#include "diffusion/interpolant_sampler.h"

namespace tessera::diffusion {

enum class Process { diffusion, linear, gvp, vp };

struct ProcessConfig {
  Process process = Process::diffusion;
  // For diffusion.
  diffusion::ScheduleKind schedule = diffusion::ScheduleKind::linear;
  int64_t steps = 1000;
  double beta_start = 0, beta_end = 0;
  bool zero_terminal_snr = false;
  diffusion::Prediction predict = diffusion::Prediction::epsilon;
  double min_snr = 0;
  // For interpolants.
  diffusion::Field field = diffusion::Field::velocity;
  diffusion::LossWeight loss_weight = diffusion::LossWeight::none;

  template <class V>
  void visit(V& v) {
    v("process", process, choice<Process>(),
      "diffusion over steps (DiT), or the path of an interpolant over t (SiT)");
    v("schedule", schedule, choice<diffusion::ScheduleKind>(), "diffusion: how noise grows over the steps");
    v("steps", steps, between(1, 100000), "diffusion: steps of the schedule");
    v("beta_start", beta_start, from_to_below(0, 1),
      "diffusion: first beta of the linear schedules, 0 = 0.1 / steps");
    v("beta_end", beta_end, from_to_below(0, 1),
      "diffusion: last beta of the linear schedules, 0 = 20 / steps");
    v("zero_terminal_snr", zero_terminal_snr, "diffusion: nothing is left of the image after the last step");
    v("predict", predict, choice<diffusion::Prediction>(), "diffusion: quantity that the network predicts");
    v("min_snr", min_snr, at_least(0), "diffusion: gamma of the min-SNR weight of the loss, 0 = none");
    v("field", field, choice<diffusion::Field>(), "interpolants: quantity that the network predicts");
    v("loss_weight", loss_weight, choice<diffusion::LossWeight>(),
      "interpolants: weight of a loss of score or noise");
  }
};

// Throws a usage error for a key that is set but belongs to the other kind of process.
void refuse_unread_keys(const ProcessConfig& config);

// Names of samplers for users; `automatic` is ddpm for diffusion and dopri5 for interpolants.
enum class SamplerName {
  automatic,
  ddpm,
  ddim,
  dpmpp,
  dpmpp_2m,
  dpmpp_3m,
  dpmpp_2m_sde,
  euler,
  euler_ancestral,
  heun,
  dopri5,
  sde,
  sde_heun
};

// Throws a usage error for `steps` if the sampler chooses its own.
void require_counted_steps(SamplerName sampler, int64_t steps);
// True if the sampler chooses its own steps.
bool takes_own_steps(SamplerName sampler);

struct SamplerConfig {
  SamplerName sampler = SamplerName::automatic;
  int64_t steps = 0;           // 0 = 250 for ddpm and sde, 50 for the others
  std::string respacing = {};  // ddpm: replaces `steps`, in the form of diffusion::respace
  double eta = 0;              // ddim
  bool karras = false;         // dpmpp, euler, heun of diffusion
  diffusion::Spacing spacing = diffusion::Spacing::trailing;
  diffusion::DiffusionForm form = diffusion::DiffusionForm::sigma;  // sde
  diffusion::LastStep last_step = diffusion::LastStep::mean;        // sde
  double last_step_size = 0.04;                                     // sde
  double clip = 0;  // ddpm, ddim, heun of diffusion: clips clean images to +-clip, 0 = no
  double threshold =
      0;  // ddim, dpmpp: quantile of dynamic thresholding (diffusion/discrete_sampler.h), 0 = none
};

class NoiseProcess {
 public:
  // Throws a usage error for conflicting keys. `learns_sigma`: the network also predicts variances.
  NoiseProcess(const ProcessConfig& config, bool learns_sigma);

  // Maps a number in [0, 1) to a sample's time: a step, or a t.
  double time_of(double uniform) const;
  // Returns the noisiness of a time: 0 clean, 1 noise.
  torch::Tensor noise_share(const torch::Tensor& time) const;
  // x at times [batch], floating, and the loss [batch] of the network's output there.
  torch::Tensor noised(const torch::Tensor& clean, const torch::Tensor& noise,
                       const torch::Tensor& time) const;
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& clean, const torch::Tensor& noise,
                     const torch::Tensor& time) const;
  // Throws a usage error for a sampler of the other kind, or one with invalid options.
  std::unique_ptr<diffusion::Sampler> sampler(const SamplerConfig& config) const;
  // Returns the config with actual values for `automatic` and steps = 0.
  SamplerConfig resolved(const SamplerConfig& config) const;

  const ProcessConfig& config() const { return config_; }
  const diffusion::GaussianDiffusion* diffusion() const { return diffusion_ ? &*diffusion_ : nullptr; }
  const diffusion::Interpolant* interpolant() const { return interpolant_ ? &*interpolant_ : nullptr; }

 private:
  diffusion::ScheduleOptions schedule() const;

  ProcessConfig config_;
  std::optional<diffusion::GaussianDiffusion> diffusion_;
  std::optional<diffusion::Interpolant> interpolant_;
};

}  // namespace tessera::diffusion

template <>
struct tessera::EnumNames<tessera::diffusion::Process> {
  static constexpr std::array names = {"diffusion", "linear", "gvp", "vp"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::SamplerName> {
  static constexpr std::array names = {"auto",     "ddpm",         "ddim",    "dpmpp",           "dpmpp_2m",
                                       "dpmpp_3m", "dpmpp_2m_sde", "euler",   "euler_ancestral", "heun",
                                       "dopri5",   "sde",          "sde_heun"};
};
