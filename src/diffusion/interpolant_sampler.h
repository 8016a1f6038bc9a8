// Samplers of interpolants: the ordinary equation by Euler, Heun or Dormand & Prince, the stochastic one by
// Euler-Maruyama or Heun (Ma et al. 2024, section 2.3).
#pragma once

#include "diffusion/interpolant.h"
#include "diffusion/sampler.h"

namespace tessera::diffusion {

enum class OdeMethod { euler, heun, dopri5 };
enum class SdeMethod { euler, heun };
// The last step, of size last_step: none; along the drift without noise; to the mean of the image (Tweedie);
// or along the velocity.
enum class LastStep { none, mean, tweedie, euler };

struct OdeOptions {
  OdeMethod method = OdeMethod::dopri5;
  int64_t points = 50;  // grid points of t, both ends included: one more than steps
  // Between points, dopri5 adapts its steps to each sample separately, so results do not depend on the batch.
  double absolute = 1e-6, relative = 1e-3;
};
struct SdeOptions {
  SdeMethod method = SdeMethod::euler;
  DiffusionForm form = DiffusionForm::sigma;
  double norm = 1;
  LastStep last = LastStep::mean;
  double last_size = 0.04;
  int64_t points = 250;  // grid points; the last step counts as one of its steps
};

// Throws a usage error if the equation divides by zero at one end.
std::unique_ptr<Sampler> make_ode_sampler(const Interpolant& interpolant, const OdeOptions& options);
std::unique_ptr<Sampler> make_sde_sampler(const Interpolant& interpolant, const SdeOptions& options);

// dx/dt of a batch, for t [batch].
using Slope = std::function<torch::Tensor(const torch::Tensor& x, const torch::Tensor& t)>;
// Integrates one interval of an ordinary equation from t0 to t1; t1 < t0 is allowed.
torch::Tensor integrate(const Slope& slope, const torch::Tensor& x, double t0, double t1,
                        const OdeOptions& options);

// Returns -log2 p / dimensions, [batch], of the images as the network gets them, by the ordinary equation
// from image to noise (Song et al. 2021). One draw of `signs` (+-1, shaped like x) estimates the trace of its
// divergence.
torch::Tensor ode_bits(const Interpolant& interpolant, const Network& network, const torch::Tensor& images,
                       const torch::Tensor& signs, const OdeOptions& options);

}  // namespace tessera::diffusion

template <>
struct tessera::EnumNames<tessera::diffusion::OdeMethod> {
  static constexpr std::array names = {"euler", "heun", "dopri5"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::SdeMethod> {
  static constexpr std::array names = {"euler", "heun"};
};
template <>
struct tessera::EnumNames<tessera::diffusion::LastStep> {
  static constexpr std::array names = {"none", "mean", "tweedie", "euler"};
};
