// Samplers for networks that were trained on a schedule of discrete steps.
//
//   ddpm       the training chain over fewer steps (Nichol & Dhariwal 2021)
//   ddim       DDIM with eta (Song et al. 2021)
//   dpm        DPM-Solver++, multistep, orders 1 to 3 (Lu et al. 2022)
//   dpm_sde    its stochastic form; the third order weights the second difference as diffusers does
//   euler, euler_ancestral, heun   of x = x_0 + sigma e (Karras et al. 2022; ancestral as in k-diffusion)
//
// Levels, spacings and ends follow diffusers' schedulers, so that settings of pipelines keep their meaning.
#pragma once

#include <limits>
#include <string>

#include "diffusion/gaussian.h"
#include "diffusion/sampler.h"

namespace tessera::diffusion {

enum class Method { ddpm, ddim, dpm, dpm_sde, euler, euler_ancestral, heun };

// Which steps of the schedule are taken. leading: from 0 with an integer stride; trailing: down from the last
// with a fractional stride; linspace: both ends.
enum class Spacing { leading, trailing, linspace };
// The noise level after a step of DDIM: that of the next step taken, or that of the step N / steps lower, as
// in diffusers. They differ for linspace, and for trailing if the steps do not divide the schedule's N.
enum class NextLevel { listed, diffusers };
// The noise levels of the steps, largest first.
//   schedule the levels of the steps of `spacing`
//   karras       sigma^(1/7) evenly spaced (Karras et al. 2022, eq. 5)
//   exponential  log sigma evenly spaced
//   log_snr      dpm: log sigma evenly spaced, at the nearest whole steps (Lu et al. 2022, "DPM-Solver")
//   beta         quantiles of Beta(0.6, 0.6) (Lee et al. 2024, "Beta sampling is all you need")
enum class SigmaSpacing { schedule, karras, exponential, log_snr, beta };
// The quantity that DPM-Solver extrapolates in log(alpha / sigma): the clean image (DPM-Solver++) or the
// noise (the earlier DPM-Solver).
enum class SolverOf { clean, noise };
// The weight of DPM-Solver's second-order term.
enum class SolverForm { midpoint, heun };
// The noise level after the last step: zero, or that of the schedule's first step.
enum class FinalSigma { zero, minimum };

struct DiscreteOptions {
  Method method = Method::ddpm;
  int64_t steps = 250;
  std::string respacing = {};  // ddpm: replaces `steps`, in the form of respace()
  double eta = 0;              // ddim: 0 adds no noise, 1 as much as the chain
  bool noise_of_clean =
      false;          // ddim: noise is recomputed from x and the clipped image (Nichol et al. 2021, GLIDE)
  int64_t order = 2;  // dpm, dpm_sde: 1 to 3
  SolverForm form = SolverForm::midpoint;
  bool lower_order_final = true,
       euler_at_final = false;  // dpm: lower order in the last steps if there are few steps
  Spacing spacing = Spacing::trailing;
  NextLevel next_level = NextLevel::listed;      // ddim
  int64_t steps_offset = 0;                      // leading: added to every step
  SigmaSpacing sigmas = SigmaSpacing::schedule;  // dpm, euler, heun
  double sigma_min = 0, sigma_max = 0;        // euler, heun: ends of the other spacings; 0 = the schedule's
  FinalSigma final_sigma = FinalSigma::zero;  // dpm, euler
  SolverOf solver_of = SolverOf::clean;       // dpm, dpm_sde; noise requires FinalSigma::minimum
  double least_log_snr = -kUnbounded;         // dpm: skips steps with log(alpha / sigma) below this
  bool log_linear = false;       // euler: log sigma evenly spaced over the schedule; keeps its last level
  bool log_time = false;         // euler: the network's time is log(sigma) / 4
  bool alpha_one_at_end = true;  // ddim: step 0 ends at a clean image, else at its own level
  double clip = 0;               // ddpm, ddim, heun: clips the clean image to +-clip; 0 = no
  // ddim, dpm: dynamic thresholding (Saharia et al. 2022, section 2.3): clips the clean image to +-s and
  // divides by s, this quantile of its magnitudes, at least 1 and at most `threshold_most`; 0 = off.
  // Overrides `clip`.
  double threshold = 0, threshold_most = kUnbounded;

  static constexpr double kUnbounded = std::numeric_limits<double>::infinity();
};

// Throws a usage error: more steps than the schedule has, or options of another method.
std::unique_ptr<Sampler> make_discrete_sampler(const ScheduleOptions& schedule,
                                               const GaussianOptions& network,
                                               const DiscreteOptions& options);

// A sampler's times for the network, and sigmas = sqrt((1 - a) / a), including the sigma after the last step.
struct SigmaPlan {
  std::vector<double> times, sigmas;
};
SigmaPlan plan_sigmas(const std::vector<double>& alphas_cumprod, ScheduleKind kind,
                      const DiscreteOptions& options);
// Returns DDIM's steps, descending.
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
struct tessera::EnumNames<tessera::diffusion::NextLevel> {
  static constexpr std::array names = {"listed", "diffusers"};
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
