// Stochastic interpolants (Albergo et al. 2023) as in SiT (Ma et al. 2024); t runs from 0 (noise) to 1
// (image).
//
//   x_t = alpha_t x_1 + sigma_t x_0,   x_1 the image, x_0 normal
//   linear  alpha = t,               sigma = 1 - t
//   gvp     alpha = sin(pi t / 2),   sigma = cos(pi t / 2)
//   vp      alpha = exp(-(1-t)^2 (b1 - b0) / 4 - (1-t) b0 / 2), sigma = sqrt(1 - alpha^2)
//   velocity v = alpha' x_1 + sigma' x_0;  score s = -x_0 / sigma
//   dx = v dt                                       ordinary differential equation
//   dx = (v + w s) dt + sqrt(2 w) dW                stochastic one; w is any diffusion coefficient
#pragma once

#include "ops/torch.h"

#include <utility>

#include "core/config.h"

namespace tessera::diffusion {

enum class PathKind { linear, gvp, vp };
// The quantity that the network predicts at x_t.
enum class Field { velocity, score, noise };
// The weight of a loss on score or noise: 1, the velocity loss's, or the likelihood bound's.
enum class LossWeight { none, velocity, likelihood };
// The coefficient w of the stochastic equation; `sbdm` uses that of the diffusion process itself.
enum class DiffusionForm { constant, sbdm, sigma, linear, decreasing, increasing_decreasing };

// alpha_t and sigma_t and their derivatives, for t of any shape.
class Path {
 public:
  explicit Path(PathKind kind, double vp_low = 0.1, double vp_high = 20)
      : kind_(kind), low_(vp_low), high_(vp_high) {}
  PathKind kind() const { return kind_; }

  torch::Tensor alpha(const torch::Tensor& t) const;
  torch::Tensor alpha_slope(const torch::Tensor& t) const;
  torch::Tensor sigma(const torch::Tensor& t) const;
  torch::Tensor sigma_slope(const torch::Tensor& t) const;
  torch::Tensor alpha_log_slope(const torch::Tensor& t) const;  // alpha' / alpha

  // The diffusion process backwards, dx = -drift dt + sqrt(2 g) dW: v = g s - drift.
  torch::Tensor drift(const torch::Tensor& x, const torch::Tensor& t) const;
  torch::Tensor drift_variance(const torch::Tensor& t) const;  // g
  torch::Tensor diffusion(const torch::Tensor& t, DiffusionForm form, double norm) const;

  torch::Tensor noised(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& t) const;
  torch::Tensor velocity(const torch::Tensor& clean, const torch::Tensor& noise,
                         const torch::Tensor& t) const;

  torch::Tensor score_of_velocity(const torch::Tensor& v, const torch::Tensor& x,
                                  const torch::Tensor& t) const;
  torch::Tensor noise_of_velocity(const torch::Tensor& v, const torch::Tensor& x,
                                  const torch::Tensor& t) const;
  torch::Tensor velocity_of_score(const torch::Tensor& s, const torch::Tensor& x,
                                  const torch::Tensor& t) const;

 private:
  torch::Tensor log_alpha(const torch::Tensor& t) const;  // for vp
  torch::Tensor log_alpha_slope(const torch::Tensor& t) const;

  PathKind kind_;
  double low_, high_;
};

// Returns t [batch] as [batch, 1, 1, …] to broadcast against x.
torch::Tensor beside(const torch::Tensor& t, const torch::Tensor& x);

// A path and the quantity that the network predicts. Where an end would divide by zero, times keep a distance
// from it: `train_end` in training, `sample_end` in sampling. Negative: as published (VP 1e-5 and 1e-3;
// others 1e-3, but 0 for velocities).
struct InterpolantOptions {
  PathKind path = PathKind::linear;
  Field field = Field::velocity;
  LossWeight weight = LossWeight::none;
  double train_end = -1, sample_end = -1;
};

class Interpolant {
 public:
  explicit Interpolant(const InterpolantOptions& options);
  const Path& path() const { return path_; }
  const InterpolantOptions& options() const { return options_; }

  struct Interval {
    double from = 0, to = 1;
  };
  Interval training_interval() const;
  Interval ode_interval(bool reverse = false) const;
  // The size of a separate last step; 0 = none.
  Interval sde_interval(DiffusionForm form, double last_step) const;

  // Returns the loss [batch] of an output at x_t of that image and noise; t within training_interval().
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& clean, const torch::Tensor& noise,
                     const torch::Tensor& t) const;
  // Convert an output.
  torch::Tensor velocity(const torch::Tensor& output, const torch::Tensor& x, const torch::Tensor& t) const;
  torch::Tensor score(const torch::Tensor& output, const torch::Tensor& x, const torch::Tensor& t) const;

 private:
  Interval interval(double end, bool sde, DiffusionForm form, double last_step) const;

  InterpolantOptions options_;
  Path path_;
};

}  // namespace tessera::diffusion

template <>
struct tessera::EnumNames<tessera::diffusion::PathKind> {
  static constexpr std::array names = {"linear", "gvp", "vp"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::Field> {
  static constexpr std::array names = {"velocity", "score", "noise"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::LossWeight> {
  static constexpr std::array names = {"none", "velocity", "likelihood"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::DiffusionForm> {
  static constexpr std::array names = {"constant", "sbdm",       "sigma",
                                       "linear",   "decreasing", "increasing_decreasing"};
};
