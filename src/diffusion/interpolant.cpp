#include "diffusion/interpolant.h"

#include <numbers>

#include "core/error.h"

namespace tessera::diffusion {
namespace {

constexpr double kHalfPi = std::numbers::pi / 2;

torch::Tensor mean_by_sample(const torch::Tensor& x) { return x.flatten(1).mean(1); }

}  // namespace

torch::Tensor beside(const torch::Tensor& t, const torch::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape.front() = t.size(0);
  return t.to(x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32).view(shape);
}

// --- paths

torch::Tensor Path::log_alpha(const torch::Tensor& t) const {
  return -0.25 * (1 - t).square() * (high_ - low_) - 0.5 * (1 - t) * low_;
}

torch::Tensor Path::log_alpha_slope(const torch::Tensor& t) const {
  return 0.5 * (1 - t) * (high_ - low_) + 0.5 * low_;
}

torch::Tensor Path::alpha(const torch::Tensor& t) const {
  if (kind_ == PathKind::linear) return t;
  return kind_ == PathKind::gvp ? torch::sin(t * kHalfPi) : torch::exp(log_alpha(t));
}

torch::Tensor Path::alpha_slope(const torch::Tensor& t) const {
  if (kind_ == PathKind::linear) return torch::ones_like(t);
  return kind_ == PathKind::gvp ? kHalfPi * torch::cos(t * kHalfPi) : alpha(t) * log_alpha_slope(t);
}

torch::Tensor Path::sigma(const torch::Tensor& t) const {
  if (kind_ == PathKind::linear) return 1 - t;
  return kind_ == PathKind::gvp ? torch::cos(t * kHalfPi) : torch::sqrt(-torch::expm1(2 * log_alpha(t)));
}

torch::Tensor Path::sigma_slope(const torch::Tensor& t) const {
  if (kind_ == PathKind::linear) return -torch::ones_like(t);
  if (kind_ == PathKind::gvp) return -kHalfPi * torch::sin(t * kHalfPi);
  return torch::exp(2 * log_alpha(t)) * (2 * log_alpha_slope(t)) / (-2 * sigma(t));
}

torch::Tensor Path::alpha_log_slope(const torch::Tensor& t) const {
  if (kind_ == PathKind::linear) return 1 / t;
  return kind_ == PathKind::gvp ? kHalfPi / torch::tan(t * kHalfPi) : log_alpha_slope(t);
}

torch::Tensor Path::drift(const torch::Tensor& x, const torch::Tensor& t) const {
  // For vp the coefficient equals beta / 2.
  return -alpha_log_slope(beside(t, x)) * x;
}

torch::Tensor Path::drift_variance(const torch::Tensor& t) const {
  if (kind_ == PathKind::vp) return (low_ + (1 - t) * (high_ - low_)) / 2;
  const torch::Tensor s = sigma(t);
  return alpha_log_slope(t) * s.square() - s * sigma_slope(t);
}

torch::Tensor Path::diffusion(const torch::Tensor& t, DiffusionForm form, double norm) const {
  switch (form) {
    case DiffusionForm::constant:
      return torch::full_like(t, norm);
    case DiffusionForm::sbdm:
      return norm * drift_variance(t);
    case DiffusionForm::sigma:
      return norm * sigma(t);
    case DiffusionForm::linear:
      return norm * (1 - t);
    case DiffusionForm::decreasing:
      return 0.25 * (norm * torch::cos(std::numbers::pi * t) + 1).square();
    default:
      return norm * torch::sin(std::numbers::pi * t).square();
  }
}

torch::Tensor Path::noised(const torch::Tensor& clean, const torch::Tensor& noise,
                           const torch::Tensor& t) const {
  const torch::Tensor at = beside(t, clean);
  return alpha(at) * clean + sigma(at) * noise;
}

torch::Tensor Path::velocity(const torch::Tensor& clean, const torch::Tensor& noise,
                             const torch::Tensor& t) const {
  const torch::Tensor at = beside(t, clean);
  return alpha_slope(at) * clean + sigma_slope(at) * noise;
}

torch::Tensor Path::score_of_velocity(const torch::Tensor& v, const torch::Tensor& x,
                                      const torch::Tensor& t) const {
  const torch::Tensor at = beside(t, x), s = sigma(at), ratio = alpha(at) / alpha_slope(at);
  return (ratio * v - x) / (s.square() - ratio * sigma_slope(at) * s);
}

torch::Tensor Path::noise_of_velocity(const torch::Tensor& v, const torch::Tensor& x,
                                      const torch::Tensor& t) const {
  const torch::Tensor at = beside(t, x), ratio = alpha(at) / alpha_slope(at);
  return (ratio * v - x) / (ratio * sigma_slope(at) - sigma(at));
}

torch::Tensor Path::velocity_of_score(const torch::Tensor& s, const torch::Tensor& x,
                                      const torch::Tensor& t) const {
  return drift_variance(beside(t, x)) * s - drift(x, t);
}

// --- the interpolant

Interpolant::Interpolant(const InterpolantOptions& options) : options_(options), path_(options.path) {
  const bool vp = options.path == PathKind::vp, plain = !vp && options.field == Field::velocity;
  if (options_.train_end < 0) options_.train_end = vp ? 1e-5 : plain ? 0 : 1e-3;
  if (options_.sample_end < 0) options_.sample_end = plain ? 0 : 1e-3;
  if (options_.train_end >= 0.5 || options_.sample_end >= 0.5)
    fail_usage("train_end = ", options_.train_end, " and sample_end = ", options_.sample_end,
               ", must be below 0.5");
  if (options.weight != LossWeight::none && options.field == Field::velocity)
    fail_usage("a weight of the loss goes with a network of score or noise, not velocity");
}

Interpolant::Interval Interpolant::interval(double end, bool sde, DiffusionForm form,
                                            double last_step) const {
  const double stop = sde && last_step > 0 ? 1 - last_step : 1 - end;
  if (path_.kind() == PathKind::vp) return {0, stop};
  const bool by_velocity = options_.field == Field::velocity;
  if (by_velocity && !sde) return {0, 1};
  const bool divides = !by_velocity || (sde && form == DiffusionForm::sbdm);
  return {divides ? end : 0, stop};
}

Interpolant::Interval Interpolant::training_interval() const {
  return interval(options_.train_end, false, DiffusionForm::sbdm, 0);
}

Interpolant::Interval Interpolant::ode_interval(bool reverse) const {
  const Interval forward = interval(options_.sample_end, false, DiffusionForm::sbdm, 0);
  return reverse ? Interval{1 - forward.from, 1 - forward.to} : forward;
}

Interpolant::Interval Interpolant::sde_interval(DiffusionForm form, double last_step) const {
  return interval(options_.sample_end, true, form, last_step);
}

torch::Tensor Interpolant::loss(const torch::Tensor& output, const torch::Tensor& clean,
                                const torch::Tensor& noise, const torch::Tensor& t) const {
  if (options_.field == Field::velocity)
    return mean_by_sample((output - path_.velocity(clean, noise, t)).square());
  const torch::Tensor at = beside(t, clean), sigma = path_.sigma(at);
  torch::Tensor weight = torch::ones_like(sigma);
  if (options_.weight == LossWeight::velocity) weight = (path_.drift_variance(at) / sigma).square();
  if (options_.weight == LossWeight::likelihood) weight = path_.drift_variance(at) / sigma.square();
  if (options_.field == Field::noise) return mean_by_sample(weight * (output - noise).square());
  return mean_by_sample(weight * (output * sigma + noise).square());
}

torch::Tensor Interpolant::velocity(const torch::Tensor& output, const torch::Tensor& x,
                                    const torch::Tensor& t) const {
  return options_.field == Field::velocity ? output : path_.velocity_of_score(score(output, x, t), x, t);
}

torch::Tensor Interpolant::score(const torch::Tensor& output, const torch::Tensor& x,
                                 const torch::Tensor& t) const {
  if (options_.field == Field::score) return output;
  if (options_.field == Field::noise) return output / -path_.sigma(beside(t, x));
  return path_.score_of_velocity(output, x, t);
}

}  // namespace tessera::diffusion
