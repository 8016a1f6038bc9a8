// Training objective and matching samplers of a denoising network: diffusion over steps
// (diffusion/gaussian.h) or an interpolant over t in [0, 1] (diffusion/interpolant.h), chosen by a recipe's
// keys.
#pragma once

#include "ops/torch.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "core/random.h"
#include "diffusion/gaussian.h"
#include "diffusion/guidance.h"
#include "diffusion/samplers.h"

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

using diffusion::SamplerConfig;

class NoiseProcess {
 public:
  // Throws a usage error for conflicting keys. `learns_sigma`: the network also predicts variances.
  NoiseProcess(const ProcessConfig& config, bool learns_sigma);

  // Maps a number in [0, 1) to a sample's time: a step, or a t.
  double time_of(double uniform) const;
  // Returns the noise level of a time: 0 clean, 1 noise.
  torch::Tensor noise_share(const torch::Tensor& time) const;
  // x at times [batch], floating, and the loss [batch] of the network's output there.
  torch::Tensor noised(const torch::Tensor& clean, const torch::Tensor& noise,
                       const torch::Tensor& time) const;
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& clean, const torch::Tensor& noise,
                     const torch::Tensor& time) const;
  // Throws a usage error for a sampler of the other kind, or one with invalid options.
  std::unique_ptr<diffusion::Sampler> sampler(const SamplerConfig& config) const;
  // Returns the row of the config's sampler.
  const diffusion::SamplerRow& row(const SamplerConfig& config) const;
  // Returns the config with sampler, steps and `clip` filled in. `pixels`: images are within -1 and 1.
  SamplerConfig resolved(const SamplerConfig& config, bool pixels = false) const;
  // Returns `steps`, at most those of the schedule.
  int64_t most_steps(int64_t steps) const { return diffusion_ ? std::min(steps, config_.steps) : steps; }

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
