// Denoising diffusion (Ho et al. 2020) with learned variances (Nichol & Dhariwal 2021), as DiT trains and samples it.
//
//   q(x_t | x_0)        = N(sqrt(a_t) x_0, 1 - a_t)
//   p(x_{t-1} | x_t)    = N(mu_t(x_t, x_0'), sigma_t^2),  x_0' from the network
//   log sigma_t^2       = f log beta_t + (1 - f) log b_t,  f = (v + 1) / 2, v the network's further channels
//   loss                = mean (target - output)^2 + variational term of sigma (its mean is held)
// b_t is the variance of q(x_{t-1} | x_t, x_0).
#pragma once

#include "ops/torch.h"

#include <string>

#include "diffusion/schedule.h"

namespace tessera::diffusion {

// learned: by the network, between the two others. fixed_small: b_t; fixed_large: beta_t.
enum class Variance { learned, fixed_small, fixed_large };

struct GaussianOptions {
  Prediction prediction = Prediction::epsilon;
  Variance variance = Variance::learned;
  bool variational_only = false;     // the loss is the variational term times the steps, for all channels
  bool rescale_variational = false;  // the term beside the square error times steps / 1000
  double min_snr_gamma = 0;          // weight of the square error (schedule.h); 0 = 1
};

// A Gaussian for each value, and the clean image behind it.
struct Moments {
  torch::Tensor mean, variance, log_variance;
  torch::Tensor clean = {};
};

// A loss [batch], and its terms where it has them.
struct GaussianLoss {
  torch::Tensor total, square = {}, variational = {};
};

// Images x are [batch, channels, height, width]; t [batch] int64 counts steps of `schedule`; an output of the network
// has the channels of x, and as many again where variances are learned.
class GaussianDiffusion {
 public:
  GaussianDiffusion(Schedule schedule, const GaussianOptions& options);
  const Schedule& schedule() const { return schedule_; }
  const GaussianOptions& options() const { return options_; }

  torch::Tensor noised(const torch::Tensor& clean, const torch::Tensor& t, const torch::Tensor& noise) const;
  // q(x_{t-1} | x_t, x_0).
  Moments posterior(const torch::Tensor& clean, const torch::Tensor& x, const torch::Tensor& t) const;
  // p(x_{t-1} | x_t); `clip` keeps the clean image within -1 and 1.
  Moments predicted(const torch::Tensor& output, const torch::Tensor& x, const torch::Tensor& t,
                    bool clip) const;

  // What the network is to say of x_t: the first channels of its output.
  torch::Tensor target(const torch::Tensor& clean, const torch::Tensor& t, const torch::Tensor& noise) const;
  GaussianLoss loss(const torch::Tensor& output, const torch::Tensor& clean, const torch::Tensor& noise,
                    const torch::Tensor& t) const;
  // Terms of the bound on the negative log-likelihood in bits a dimension, [batch]: of step t (at 0 that of the
  // 256 levels), and of what is left of the image after the last step.
  torch::Tensor variational_bits(const torch::Tensor& output, const torch::Tensor& clean,
                                 const torch::Tensor& x, const torch::Tensor& t, bool clip = false) const;
  torch::Tensor prior_bits(const torch::Tensor& clean) const;

  // x_{t-1} from x_t: of the chain (Ho et al. 2020), of DDIM with eta (Song et al. 2021, eq. 12), and x_{t+1} by the
  // same ODE backwards.
  torch::Tensor ancestral_step(const torch::Tensor& output, const torch::Tensor& x, const torch::Tensor& t,
                               const torch::Tensor& noise, bool clip) const;
  torch::Tensor ddim_step(const torch::Tensor& output, const torch::Tensor& x, const torch::Tensor& t,
                          const torch::Tensor& noise, double eta, bool clip) const;
  torch::Tensor ddim_reverse_step(const torch::Tensor& output, const torch::Tensor& x, const torch::Tensor& t,
                                  bool clip) const;

 private:
  torch::Tensor clean_of(const torch::Tensor& values, const torch::Tensor& x, const torch::Tensor& t) const;
  torch::Tensor noise_of(const torch::Tensor& clean, const torch::Tensor& x, const torch::Tensor& t) const;

  Schedule schedule_;
  GaussianOptions options_;
};

// Entries of a table at t [batch] int64, [batch, 1, 1, …] to go with x.
torch::Tensor entries(const std::vector<double>& table, const torch::Tensor& t, const torch::Tensor& x);

}  // namespace tessera::diffusion

template <>
struct tessera::EnumNames<tessera::diffusion::Variance> {
  static constexpr std::array names = {"learned", "fixed_small", "fixed_large"};
};
