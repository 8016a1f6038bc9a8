// Noise schedules of diffusion: the share of the image left after t of T steps.
//
//   x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) e,   a_t = prod (1 - beta_s), s = 0 … t
//
//   linear         beta evenly spaced (Ho et al. 2020)
//   scaled_linear  sqrt(beta) evenly spaced (Rombach et al. 2022)
//   cosine         a_t = cos^2((t / T + 0.008) / 1.008 pi / 2) (Nichol & Dhariwal 2021)
//   sigmoid        beta along a logistic function from -6 to 6 (Xu et al. 2022, "GeoDiff")
//   exponential    a_t = exp(-12 t / T)
//   laplace        a_t such that log(alpha / sigma) has a Laplace distribution (Hang et al. 2024)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"

namespace tessera::diffusion {

enum class ScheduleKind { linear, scaled_linear, cosine, sigmoid, exponential, laplace };

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::linear;
  int64_t steps = 1000;
  // Ends of the linear kinds and sigmoid; 0 = 0.0001 and 0.02 times 1000 / steps, as in ADM and DiT.
  double beta_start = 0, beta_end = 0;
  std::vector<double> betas = {};  // `steps` betas that replace those of the kind
  bool zero_terminal_snr = false;  // no signal is left after the last step (Lin et al. 2024)
};

// Throws a usage error with `steps` and the betas.
std::vector<double> make_betas(const ScheduleOptions& options);
// Shifts and scales sqrt(a_t) so that the last is 0 and the first stays (Lin et al. 2024, algorithm 1).
std::vector<double> zero_terminal_snr(const std::vector<double>& betas);
std::vector<double> cumulative_alphas(const std::vector<double>& betas);

// Returns the steps to keep of `steps`, ascending. "250": that many, evenly spaced from first to last;
// "10,15,20": that many of each third; "ddim50": 50 by an integer stride; "": all. Throws a usage error.
std::vector<int64_t> respace(int64_t steps, const std::string& spacing);

// Coefficients of forward and backward steps (Ho et al. 2020, eq. 4, 6 and 7), one per step, in double.
struct Schedule {
  // `map`: numbers of the steps in the trained process, {} = the same.
  explicit Schedule(std::vector<double> betas, std::vector<int64_t> map = {});
  // Returns the process with only those steps; their noise levels do not change.
  Schedule respaced(const std::vector<int64_t>& kept) const;

  int64_t steps() const { return static_cast<int64_t>(betas.size()); }

  std::vector<double> betas, alphas_cumprod, alphas_cumprod_prev, alphas_cumprod_next;
  std::vector<double> sqrt_alphas_cumprod, sqrt_one_minus_alphas_cumprod, log_one_minus_alphas_cumprod;
  std::vector<double> sqrt_recip_alphas_cumprod, sqrt_recipm1_alphas_cumprod;
  // q(x_{t-1} | x_t, x_0) has the mean coef1 x_0 + coef2 x_t. Its first variance is 0; the logarithm's first
  // entry is replaced by the second.
  std::vector<double> posterior_variance, posterior_log_variance_clipped;
  std::vector<double> posterior_mean_coef1, posterior_mean_coef2;
  std::vector<int64_t> timestep_map;
};

// The network's prediction at x_t = alpha x_0 + sigma e: the noise e, the clean image x_0, or v = alpha e -
// sigma x_0 (Salimans & Ho 2022).
enum class Prediction { epsilon, x0, v };

// Returns a / (1 - a) of every step.
std::vector<double> signal_to_noise(const std::vector<double>& alphas_cumprod);
// Returns each step's weight for the squared error of the prediction, equivalent to the weight min(snr,
// gamma) on the error of x_0 (Hang et al. 2023).
std::vector<double> min_snr_weights(const std::vector<double>& snr, double gamma, Prediction prediction);

}  // namespace tessera::diffusion

template <>
struct tessera::EnumNames<tessera::diffusion::ScheduleKind> {
  static constexpr std::array names = {"linear",  "scaled_linear", "cosine",
                                       "sigmoid", "exponential",   "laplace"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::Prediction> {
  static constexpr std::array names = {"epsilon", "x0", "v"};
};
