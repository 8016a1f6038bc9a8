#include "diffusion/gaussian.h"

#include <cmath>
#include <numbers>

#include "core/error.h"
#include "ops/gpu.h"

namespace tessera::diffusion {
namespace {

torch::Tensor mean_of_samples(const torch::Tensor& x) { return x.flatten(1).mean(1); }

// Returns the KL divergence of two normal distributions for each value, in nats.
torch::Tensor divergence(const torch::Tensor& mean, const torch::Tensor& log_variance,
                         const torch::Tensor& mean2, const torch::Tensor& log_variance2) {
  return 0.5 * (-1 + log_variance2 - log_variance + torch::exp(log_variance - log_variance2) +
                (mean - mean2).square() * torch::exp(-log_variance2));
}

// Approximates the normal distribution function with tanh.
torch::Tensor normal_cdf(const torch::Tensor& x) {
  return 0.5 * (1 + torch::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x.pow(3))));
}

// Returns log p of values on a grid of 2/255 between -1 and 1.
torch::Tensor discretised_log_likelihood(const torch::Tensor& x, const torch::Tensor& mean,
                                         const torch::Tensor& log_scale) {
  constexpr double kHalf = 1.0 / 255, kLeast = 1e-12, kEdge = 0.999;
  const torch::Tensor centred = x - mean, inverse = torch::exp(-log_scale);
  const torch::Tensor above = normal_cdf(inverse * (centred + kHalf)),
                      below = normal_cdf(inverse * (centred - kHalf));
  const auto log = [](const torch::Tensor& p) { return p.clamp_min(kLeast).log(); };
  return torch::where(x < -kEdge, log(above), torch::where(x > kEdge, log(1 - below), log(above - below)));
}

// fixed_large: beta_t, except that the first is the second b_t.
std::vector<double> large_variances(const Schedule& schedule) {
  std::vector<double> variances = schedule.betas;
  if (variances.size() > 1) variances.front() = schedule.posterior_variance[1];
  return variances;
}

std::vector<double> logarithms(std::vector<double> values) {
  for (double& value : values) value = std::log(value);
  return values;
}

}  // namespace

torch::Tensor entries(const std::vector<double>& table, const torch::Tensor& t, const torch::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape.front() = t.size(0);
  return ops::kept_on(x.device(), torch::tensor(table, torch::kFloat64))
      .index_select(0, t)
      .to(x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32)
      .view(shape);
}

GaussianDiffusion::GaussianDiffusion(Schedule schedule, const GaussianOptions& options)
    : schedule_(std::move(schedule)), options_(options) {}

torch::Tensor GaussianDiffusion::noised(const torch::Tensor& clean, const torch::Tensor& t,
                                        const torch::Tensor& noise) const {
  return entries(schedule_.sqrt_alphas_cumprod, t, clean) * clean +
         entries(schedule_.sqrt_one_minus_alphas_cumprod, t, clean) * noise;
}

Moments GaussianDiffusion::posterior(const torch::Tensor& clean, const torch::Tensor& x,
                                     const torch::Tensor& t) const {
  return {.mean = entries(schedule_.posterior_mean_coef1, t, x) * clean +
                  entries(schedule_.posterior_mean_coef2, t, x) * x,
          .variance = entries(schedule_.posterior_variance, t, x).expand_as(x),
          .log_variance = entries(schedule_.posterior_log_variance_clipped, t, x).expand_as(x)};
}

torch::Tensor GaussianDiffusion::clean_of(const torch::Tensor& values, const torch::Tensor& x,
                                          const torch::Tensor& t) const {
  switch (options_.prediction) {
    case Prediction::x0:
      return values;
    case Prediction::v:
      return entries(schedule_.sqrt_alphas_cumprod, t, x) * x -
             entries(schedule_.sqrt_one_minus_alphas_cumprod, t, x) * values;
    default:
      return entries(schedule_.sqrt_recip_alphas_cumprod, t, x) * x -
             entries(schedule_.sqrt_recipm1_alphas_cumprod, t, x) * values;
  }
}

Moments GaussianDiffusion::predicted(const torch::Tensor& output, const torch::Tensor& x,
                                     const torch::Tensor& t, bool clip) const {
  const int64_t channels = x.size(1);
  const bool learned = options_.variance == Variance::learned;
  check(output.size(1) == (learned ? 2 * channels : channels), "the network's output has ", output.size(1),
        " channels, must have ", learned ? 2 * channels : channels, " for images of ", channels);
  torch::Tensor log_variance, variance;
  if (learned) {
    const torch::Tensor share = (output.slice(1, channels) + 1) / 2;
    log_variance = share * entries(logarithms(schedule_.betas), t, x) +
                   (1 - share) * entries(schedule_.posterior_log_variance_clipped, t, x);
    variance = log_variance.exp();
  } else if (options_.variance == Variance::fixed_large) {
    const std::vector<double> table = large_variances(schedule_);
    variance = entries(table, t, x).expand_as(x);
    log_variance = entries(logarithms(table), t, x).expand_as(x);
  } else {
    variance = entries(schedule_.posterior_variance, t, x).expand_as(x);
    log_variance = entries(schedule_.posterior_log_variance_clipped, t, x).expand_as(x);
  }
  torch::Tensor clean = clean_of(output.slice(1, 0, channels), x, t);
  if (clip) clean = clean.clamp(-1, 1);
  return {.mean = posterior(clean, x, t).mean,
          .variance = variance,
          .log_variance = log_variance,
          .clean = clean};
}

torch::Tensor GaussianDiffusion::target(const torch::Tensor& clean, const torch::Tensor& t,
                                        const torch::Tensor& noise) const {
  switch (options_.prediction) {
    case Prediction::x0:
      return clean;
    case Prediction::v:
      return entries(schedule_.sqrt_alphas_cumprod, t, clean) * noise -
             entries(schedule_.sqrt_one_minus_alphas_cumprod, t, clean) * clean;
    default:
      return noise;
  }
}

GaussianLoss GaussianDiffusion::loss(const torch::Tensor& output, const torch::Tensor& clean,
                                     const torch::Tensor& noise, const torch::Tensor& t) const {
  const torch::Tensor x = noised(clean, t, noise);
  const auto steps = static_cast<double>(schedule_.steps());
  if (options_.variational_only) return {.total = variational_bits(output, clean, x, t) * steps};
  const int64_t channels = clean.size(1);
  const torch::Tensor values = output.slice(1, 0, channels);
  GaussianLoss loss{.total = {}, .square = mean_of_samples((target(clean, t, noise) - values).square())};
  loss.total = loss.square;
  if (options_.min_snr_gamma > 0)
    loss.total = loss.total * entries(min_snr_weights(signal_to_noise(schedule_.alphas_cumprod),
                                                      options_.min_snr_gamma, options_.prediction),
                                      t, clean)
                                  .flatten();
  if (options_.variance == Variance::learned) {
    // Only the square error trains the mean.
    const torch::Tensor held = torch::cat({values.detach(), output.slice(1, channels)}, 1);
    loss.variational = variational_bits(held, clean, x, t);
    if (options_.rescale_variational) loss.variational = loss.variational * (steps / 1000);
    loss.total = loss.total + loss.variational;
  }
  return loss;
}

torch::Tensor GaussianDiffusion::variational_bits(const torch::Tensor& output, const torch::Tensor& clean,
                                                  const torch::Tensor& x, const torch::Tensor& t,
                                                  bool clip) const {
  const Moments truth = posterior(clean, x, t), guess = predicted(output, x, t, clip);
  const torch::Tensor later =
      mean_of_samples(divergence(truth.mean, truth.log_variance, guess.mean, guess.log_variance));
  const torch::Tensor first =
      mean_of_samples(-discretised_log_likelihood(clean, guess.mean, 0.5 * guess.log_variance));
  return torch::where(t == 0, first, later) / std::numbers::ln2;
}

torch::Tensor GaussianDiffusion::prior_bits(const torch::Tensor& clean) const {
  const torch::Tensor last =
      torch::full({clean.size(0)}, schedule_.steps() - 1, clean.options().dtype(torch::kInt64));
  const torch::Tensor mean = entries(schedule_.sqrt_alphas_cumprod, last, clean) * clean;
  const torch::Tensor log_variance =
      entries(schedule_.log_one_minus_alphas_cumprod, last, clean).expand_as(clean);
  const torch::Tensor zero = torch::zeros_like(clean);
  return mean_of_samples(divergence(mean, log_variance, zero, zero)) / std::numbers::ln2;
}

torch::Tensor GaussianDiffusion::ancestral_step(const torch::Tensor& output, const torch::Tensor& x,
                                                const torch::Tensor& t, const torch::Tensor& noise,
                                                bool clip) const {
  const Moments p = predicted(output, x, t, clip);
  const torch::Tensor follows = (t != 0).to(p.mean.scalar_type()).view({-1, 1, 1, 1});
  return p.mean + follows * torch::exp(0.5 * p.log_variance) * noise;
}

}  // namespace tessera::diffusion
