// Denoising diffusion (Ho et al. 2020) with learned variances (Nichol & Dhariwal 2021), as in DiT.
//
//   q(x_t | x_0)        = N(sqrt(a_t) x_0, 1 - a_t)
//   p(x_{t-1} | x_t)    = N(mu_t(x_t, x_0'), sigma_t^2),  x_0' from the network
//   log sigma_t^2       = f log beta_t + (1 - f) log b_t,  f = (v + 1) / 2, v the network's extra channels
//   loss                = mean (target - output)^2 + variational term of sigma (its mean is detached)
// b_t is the variance of q(x_{t-1} | x_t, x_0).
#pragma once

#include "ops/torch.h"

#include <string>

#include "diffusion/schedule.h"

namespace tessera::diffusion {

// learned: the network interpolates between the other two. fixed_small: b_t; fixed_large: beta_t.
enum class Variance { learned, fixed_small, fixed_large };

struct GaussianOptions {
  Prediction prediction = Prediction::epsilon;
  Variance variance = Variance::learned;
  bool variational_only = false;     // the loss is the variational term times the steps, for all channels
  bool rescale_variational = false;  // scales the variational term by steps / 1000
  double min_snr_gamma = 0;          // gamma of the squared error's weight (schedule.h); 0 = weight 1
};

// A Gaussian for each value, and the clean image that it was derived from.
struct Moments {
  torch::Tensor mean, variance, log_variance;
  torch::Tensor clean = {};
};

// A loss [batch], and its terms if it has several.
struct GaussianLoss {
  torch::Tensor total, square = {}, variational = {};
};

// Images x are [batch, channels, height, width]; t [batch] int64 is a step of `schedule`. The network's
// output has the channels of x, or twice as many with learned variances.
class GaussianDiffusion {
 public:
  GaussianDiffusion(Schedule schedule, const GaussianOptions& options);
  const Schedule& schedule() const { return schedule_; }
  const GaussianOptions& options() const { return options_; }

  torch::Tensor noised(const torch::Tensor& clean, const torch::Tensor& t, const torch::Tensor& noise) const;
  // q(x_{t-1} | x_t, x_0).
  Moments posterior(const torch::Tensor& clean, const torch::Tensor& x, const torch::Tensor& t) const;
  // p(x_{t-1} | x_t); `clip` clamps the clean image to [-1, 1].
  Moments predicted(const torch::Tensor& output, const torch::Tensor& x, const torch::Tensor& t,
                    bool clip) const;

  // Returns the network's target at x_t: the first channels of its output.
  torch::Tensor target(const torch::Tensor& clean, const torch::Tensor& t, const torch::Tensor& noise) const;
  GaussianLoss loss(const torch::Tensor& output, const torch::Tensor& clean, const torch::Tensor& noise,
                    const torch::Tensor& t) const;
  // Return terms of the bound on the negative log-likelihood in bits per dimension, [batch]: of step t (at 0
  // over the 256 levels), and of the image content left after the last step.
  torch::Tensor variational_bits(const torch::Tensor& output, const torch::Tensor& clean,
                                 const torch::Tensor& x, const torch::Tensor& t, bool clip = false) const;
  torch::Tensor prior_bits(const torch::Tensor& clean) const;

  // Returns x_{t-1} from x_t by the chain (Ho et al. 2020).
  torch::Tensor ancestral_step(const torch::Tensor& output, const torch::Tensor& x, const torch::Tensor& t,
                               const torch::Tensor& noise, bool clip) const;

 private:
  torch::Tensor clean_of(const torch::Tensor& values, const torch::Tensor& x, const torch::Tensor& t) const;

  Schedule schedule_;
  GaussianOptions options_;
};

// Returns the table's entries at t [batch] int64, as [batch, 1, 1, …] to broadcast against x.
torch::Tensor entries(const std::vector<double>& table, const torch::Tensor& t, const torch::Tensor& x);

}  // namespace tessera::diffusion

template <>
struct tessera::EnumNames<tessera::diffusion::Variance> {
  static constexpr std::array names = {"learned", "fixed_small", "fixed_large"};
};
