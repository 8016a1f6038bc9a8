// Samplers of a network that was trained on a schedule of steps.
//
//   ddpm       the chain itself over fewer steps (Nichol & Dhariwal 2021)
//   ddim       DDIM with eta (Song et al. 2021)
//   dpm        DPM-Solver++, orders 1 to 3 by several steps (Lu et al. 2022)
//   dpm_sde    the same of the stochastic equation; its third order weighs the second difference as diffusers does
//   euler, euler_ancestral, heun   of x = x_0 + sigma e (Karras et al. 2022; the ancestral one as k-diffusion has it)
//
// Levels, spacings and ends follow diffusers' schedulers, so that settings of pipelines keep their meaning.
#pragma once

#include <limits>
#include <string>

#include "diffusion/gaussian.h"
#include "diffusion/sampler.h"

namespace tessera::diffusion {

enum class Method { ddpm, ddim, dpm, dpm_sde, euler, euler_ancestral, heun };

// Which steps of the schedule are taken. leading: from 0 with a whole stride; trailing: to the last with a stride;
// linspace: both ends.
enum class Spacing { leading, trailing, linspace };
// Which noise levels the steps have, the largest first.
//   schedule     those of the steps that `spacing` names
//   karras       sigma^(1/7) evenly spaced (Karras et al. 2022, eq. 5)
//   exponential  log sigma evenly spaced
//   log_snr      dpm: the same at the nearest whole steps (Lu et al. 2022, "DPM-Solver")
//   beta         quantiles of Beta(0.6, 0.6) (Lee et al. 2024, "Beta sampling is all you need")
enum class SigmaSpacing { schedule, karras, exponential, log_snr, beta };
// What DPM-Solver takes for a polynomial of log(alpha / sigma): the clean image (DPM-Solver++) or the noise (the
// DPM-Solver before it).
enum class SolverOf { clean, noise };
// How DPM-Solver's second term is weighed.
enum class SolverForm { midpoint, heun };
// The level behind the last step: no noise, or that of the schedule's first step.
enum class FinalSigma { zero, minimum };

struct DiscreteOptions {
  Method method = Method::ddpm;
  int64_t steps = 250;
  std::string respacing = {};  // ddpm: instead of `steps`, as respace() takes it
  double eta = 0;              // ddim: 0 draws no noise, 1 as much as the chain
  bool noise_of_clean =
      false;          // ddim: the noise is what the clipped image leaves of x (Nichol et al. 2021, GLIDE)
  int64_t order = 2;  // dpm, dpm_sde: 1 to 3
  SolverForm form = SolverForm::midpoint;
  bool lower_order_final = true,
       euler_at_final = false;  // dpm: the last steps of lower order where they are few
  Spacing spacing = Spacing::trailing;
  int64_t steps_offset = 0;                      // leading: added to every step
  SigmaSpacing sigmas = SigmaSpacing::schedule;  // dpm, euler, heun
  double sigma_min = 0, sigma_max = 0;        // euler, heun: ends of the other spacings; 0 = the schedule's
  FinalSigma final_sigma = FinalSigma::zero;  // dpm, euler
  SolverOf solver_of = SolverOf::clean;       // dpm, dpm_sde; noise goes with FinalSigma::minimum
  double least_log_snr = -kUnbounded;  // dpm: noisier steps, of log(alpha / sigma) below this, are left out
  bool log_linear = false;       // euler: log sigma evenly spaced over the schedule, whose last level stays
  bool log_time = false;         // euler: the network's time is log(sigma) / 4
  bool alpha_one_at_end = true;  // ddim: behind step 0 stands a clean image, else step 0's own level
  double clip = 0;               // ddpm, ddim, heun: the clean image is kept within +-clip; 0 = not
  // ddim, dpm: the clean image is kept within +-s and divided by s, the quantile of its magnitudes but at least 1 and at
  // most `threshold_most` (Saharia et al. 2022, section 2.3); 0 = not. Goes before `clip`.
  double threshold = 0, threshold_most = kUnbounded;

  static constexpr double kUnbounded = std::numeric_limits<double>::infinity();
};

// Usage errors: more steps than the schedule has, options of another method.
std::unique_ptr<Sampler> make_discrete_sampler(const ScheduleOptions& schedule,
                                               const GaussianOptions& network,
                                               const DiscreteOptions& options);

// The steps that a sampler asks the network for, and its sigmas = sqrt((1 - a) / a) with the one behind the last.
struct SigmaPlan {
  std::vector<double> times, sigmas;
};
SigmaPlan plan_sigmas(const std::vector<double>& alphas_cumprod, ScheduleKind kind,
                      const DiscreteOptions& options);
// DDIM's steps, descending.
std::vector<int64_t> ddim_steps(int64_t schedule_steps, const DiscreteOptions& options);

}  // namespace tessera::diffusion

template <>
struct tessera::EnumNames<tessera::diffusion::Method> {
  static constexpr std::array names = {"ddpm", "ddim", "dpmpp", "dpmpp_2m_sde", "euler", "euler_ancestral",
                                       "heun"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::Spacing> {
  static constexpr std::array names = {"leading", "trailing", "linspace"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::SigmaSpacing> {
  static constexpr std::array names = {"schedule", "karras", "exponential", "log_snr", "beta"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::SolverForm> {
  static constexpr std::array names = {"midpoint", "heun"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::FinalSigma> {
  static constexpr std::array names = {"zero", "minimum"};
};
