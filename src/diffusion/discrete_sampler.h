// Samplers of a network that was trained on a schedule of steps.
//
//   ddpm       the chain itself over fewer steps (Nichol & Dhariwal 2021)
//   ddim       DDIM with eta (Song et al. 2021)
//   dpm        DPM-Solver++, orders 1 to 3 by several steps (Lu et al. 2022)
//   dpm_sde    the same of the stochastic equation
//   euler, euler_ancestral, heun   of x = x_0 + sigma e (Karras et al. 2022; the ancestral one as k-diffusion has it)
//
// Levels, spacings and ends follow diffusers' schedulers, so that settings of pipelines keep their meaning.
#pragma once

#include <string>

#include "diffusion/gaussian.h"
#include "diffusion/sampler.h"

namespace tessera::diffusion {

enum class Method { ddpm, ddim, dpm, dpm_sde, euler, euler_ancestral, heun };

// Which steps of the schedule are taken. leading: from 0 with a whole stride; trailing: to the last with a stride;
// linspace: both ends.
enum class Spacing { leading, trailing, linspace };
// How DPM-Solver's second term is weighed.
enum class SolverForm { midpoint, heun };
// The level behind the last step: no noise, or that of the schedule's first step.
enum class FinalSigma { zero, minimum };

struct DiscreteOptions {
  Method method = Method::ddpm;
  int64_t steps = 250;
  std::string respacing = {};  // ddpm: instead of `steps`, as respace() takes it
  double eta = 0;              // ddim: 0 draws no noise, 1 as much as the chain
  int64_t order = 2;           // dpm, dpm_sde: 1 to 3
  SolverForm form = SolverForm::midpoint;
  bool lower_order_final = true,
       euler_at_final = false;  // dpm: the last steps of lower order where they are few
  Spacing spacing = Spacing::trailing;
  int64_t steps_offset = 0;  // leading: added to every step
  bool karras = false;       // dpm, euler, heun: sigma^(1/7) evenly spaced
  FinalSigma final_sigma = FinalSigma::zero;
  bool alpha_one_at_end = true;  // ddim: behind step 0 stands a clean image, else step 0's own level
  double clip = 0;               // ddpm, ddim: the clean image is kept within +-clip; 0 = not
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
  static constexpr std::array names = {"ddpm", "ddim", "dpm", "dpm_sde", "euler", "euler_ancestral", "heun"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::Spacing> {
  static constexpr std::array names = {"leading", "trailing", "linspace"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::SolverForm> {
  static constexpr std::array names = {"midpoint", "heun"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::FinalSigma> {
  static constexpr std::array names = {"zero", "minimum"};
};
