// The steps and sigmas of the samplers in discrete_sampler.h.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "diffusion/discrete_sampler.h"

namespace tessera::diffusion {
namespace {

// Interpolates linearly in a table over 0, 1, 2, …; constant beyond its ends.
double interpolated(const std::vector<double>& table, double at) {
  const auto last = static_cast<double>(table.size() - 1);
  if (at <= 0) return table.front();
  if (at >= last) return table.back();
  const auto low = static_cast<size_t>(at);
  const double share = at - static_cast<double>(low);
  return table[low] + share * (table[low + 1] - table[low]);
}

// Returns the fractional step of a sigma, by linear interpolation of its logarithm in an ascending table.
double step_of_sigma(const std::vector<double>& table, double sigma) {
  const double wanted = std::log(std::max(sigma, 1e-10));
  size_t low = 0;
  while (low + 2 < table.size() && std::log(table[low + 1]) <= wanted) ++low;
  const double below = std::log(table[low]), above = std::log(table[low + 1]);
  const double share = std::clamp((below - wanted) / (below - above), 0.0, 1.0);
  return (1 - share) * static_cast<double>(low) + share * static_cast<double>(low + 1);
}

// Returns the quantile `share` of Beta(a, a), by bisection on its distribution function:
//   I_x(a, a) = x^a (1 - x)^a / (a B(a, a)) (1 + sum_n prod_{m <= n} (2 a + m) / (a + 1 + m) x^(n + 1)),
//   x <= 1/2
double beta_quantile(double share, double a) {
  if (share <= 0 || share >= 1) return share <= 0 ? 0 : 1;
  if (share > 0.5) return 1 - beta_quantile(1 - share, a);
  const double log_scale = std::lgamma(2 * a) - 2 * std::lgamma(a) - std::log(a);
  const auto distribution = [&](double x) {
    double term = 1, sum = 1;
    for (int n = 0; term > 1e-17 * sum; ++n) sum += term *= (2 * a + n) / (a + 1 + n) * x;
    return std::exp(log_scale + a * (std::log(x) + std::log1p(-x))) * sum;
  };
  double low = 0, high = 0.5;
  for (int round = 0; round < 100; ++round) {
    const double middle = (low + high) / 2;
    (distribution(middle) < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

// Returns `count` levels between two ends, descending.
std::vector<double> spaced_sigmas(SigmaSpacing spacing, double largest, double smallest, int64_t count) {
  constexpr double kRho = 7, kBeta = 0.6;
  std::vector<double> sigmas;
  for (int64_t i = 0; i < count; ++i) {
    const double share = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0;
    const auto between = [share](double from, double to) { return from + share * (to - from); };
    if (spacing == SigmaSpacing::karras)
      sigmas.push_back(std::pow(between(std::pow(largest, 1 / kRho), std::pow(smallest, 1 / kRho)), kRho));
    else if (spacing == SigmaSpacing::beta)
      sigmas.push_back(smallest + beta_quantile(1 - share, kBeta) * (largest - smallest));
    else
      sigmas.push_back(std::exp(between(std::log(largest), std::log(smallest))));
  }
  return sigmas;
}

// Returns descending steps below `end`. `end` is `total` unless the noisiest steps are skipped.
// `without_zero`: the spacings stop before step 0; `rounded`: linspace gives whole steps. Products are
// computed as in NumPy's arange and linspace, since their last digit decides how a time near a half is
// rounded.
std::vector<double> spaced(int64_t total, int64_t end, const DiscreteOptions& options, bool without_zero,
                           bool rounded) {
  const int64_t count = options.steps;
  std::vector<double> times;
  const auto all = static_cast<double>(total), last = static_cast<double>(end),
             n = static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<double>(i);
    switch (options.spacing) {
      case Spacing::leading: {
        const int64_t stride = end / (without_zero ? count + 1 : count);
        const int64_t place = without_zero ? count - i : count - 1 - i;
        times.push_back(static_cast<double>(place * stride + options.steps_offset));
        break;
      }
      case Spacing::trailing:
        // If the noisiest steps are skipped, the others keep their spacing, so fewer remain.
        if (const double place = std::nearbyint(last + at * ((last - all / n) - last));
            end == total || place >= 1)
          times.push_back(place - 1);
        break;
      case Spacing::linspace: {
        const double parts = without_zero ? n : n - 1;
        const double time = parts == 0 ? 0 : i == 0 ? last - 1 : (parts - at) * ((last - 1) / parts);
        times.push_back(rounded ? std::nearbyint(time) : time);
        break;
      }
    }
  }
  return times;
}

std::vector<double> sigma_table(const std::vector<double>& alphas) {
  std::vector<double> table;
  // If the schedule ends in pure noise, keep 2^-24 of the image, as diffusers does.
  for (const double alpha : alphas) {
    const double left = alpha > 0 ? alpha : std::ldexp(1.0, -24);
    table.push_back(std::sqrt((1 - left) / left));
  }
  return table;
}

}  // namespace

std::vector<int64_t> ddim_steps(int64_t schedule_steps, const DiscreteOptions& options) {
  std::vector<int64_t> steps;
  for (const double time :
       spaced(schedule_steps, schedule_steps, options, /*without_zero=*/false, /*rounded=*/true))
    steps.push_back(static_cast<int64_t>(time));
  return steps;
}

SigmaPlan plan_sigmas(const std::vector<double>& alphas, ScheduleKind kind, const DiscreteOptions& options) {
  const auto total = static_cast<int64_t>(alphas.size());
  const std::vector<double> table = sigma_table(alphas);
  const bool solver = options.method == Method::dpm || options.method == Method::dpm_sde;
  SigmaPlan plan;
  const bool by_schedule = options.sigmas == SigmaSpacing::schedule;
  int64_t end = total;
  if (solver)  // alpha / sigma = 1 / the table's sigma
    end = std::count_if(table.begin(), table.end(),
                        [&](double sigma) { return -std::log(sigma) >= options.least_log_snr; });
  plan.times = spaced(total, end, options, solver, solver);
  if (solver && !by_schedule) {
    plan.sigmas = spaced_sigmas(options.sigmas, table.back(), table.front(), options.steps);
    // diffusers truncates for cosine schedules and for two of the spacings, and rounds for the others.
    const bool cut = kind == ScheduleKind::cosine || options.sigmas == SigmaSpacing::exponential ||
                     options.sigmas == SigmaSpacing::beta;
    plan.times.clear();
    for (const double sigma : plan.sigmas) {
      const double time = step_of_sigma(table, sigma);
      plan.times.push_back(cut ? std::trunc(time) : std::nearbyint(time));
    }
  } else {
    for (const double time : plan.times) plan.sigmas.push_back(interpolated(table, time));
    if (options.log_linear)
      plan.sigmas = spaced_sigmas(SigmaSpacing::exponential, table.back(), table.front(), options.steps + 1);
    if (!by_schedule) {
      const double largest = options.sigma_max > 0 ? options.sigma_max : plan.sigmas.front(),
                   smallest = options.sigma_min > 0 ? options.sigma_min : plan.sigmas.back();
      plan.sigmas = spaced_sigmas(options.sigmas, largest, smallest, options.steps);
      for (size_t i = 0; i < plan.times.size(); ++i) plan.times[i] = step_of_sigma(table, plan.sigmas[i]);
    }
    if (options.log_time)
      for (size_t i = 0; i < plan.times.size(); ++i) plan.times[i] = std::log(plan.sigmas[i]) / 4;
  }
  plan.sigmas.push_back(options.final_sigma == FinalSigma::zero ? 0 : table.front());
  return plan;
}

}  // namespace tessera::diffusion
