// Which steps and sigmas the samplers of discrete_sampler.h take.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "diffusion/discrete_sampler.h"

namespace tessera::diffusion {
namespace {

// Between the entries of a table over 0, 1, 2, …; beyond its ends they stay.
double interpolated(const std::vector<double>& table, double at) {
  const auto last = static_cast<double>(table.size() - 1);
  if (at <= 0) return table.front();
  if (at >= last) return table.back();
  const auto low = static_cast<size_t>(at);
  const double share = at - static_cast<double>(low);
  return table[low] + share * (table[low + 1] - table[low]);
}

// The step whose sigma this is, by its logarithm between those of an ascending table.
double step_of_sigma(const std::vector<double>& table, double sigma) {
  const double wanted = std::log(std::max(sigma, 1e-10));
  size_t low = 0;
  while (low + 2 < table.size() && std::log(table[low + 1]) <= wanted) ++low;
  const double below = std::log(table[low]), above = std::log(table[low + 1]);
  const double share = std::clamp((below - wanted) / (below - above), 0.0, 1.0);
  return (1 - share) * static_cast<double>(low) + share * static_cast<double>(low + 1);
}

// sigma^(1 / 7) evenly spaced (Karras et al. 2022, eq. 5), descending.
std::vector<double> karras_sigmas(double largest, double smallest, int64_t count) {
  constexpr double kRho = 7;
  const double from = std::pow(largest, 1 / kRho), to = std::pow(smallest, 1 / kRho);
  std::vector<double> sigmas;
  for (int64_t i = 0; i < count; ++i) {
    const double share = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0;
    sigmas.push_back(std::pow(from + share * (to - from), kRho));
  }
  return sigmas;
}

// Descending steps; `parts` is by how many the leading stride divides, `ends` whether linspace leaves out step 0.
std::vector<double> spaced(int64_t total, const DiscreteOptions& options, bool without_zero, bool rounded) {
  const int64_t count = options.steps;
  std::vector<double> times;
  const auto all = static_cast<double>(total), n = static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<double>(i);
    switch (options.spacing) {
      case Spacing::leading: {
        const int64_t stride = total / (without_zero ? count + 1 : count);
        const int64_t place = without_zero ? count - i : count - 1 - i;
        times.push_back(static_cast<double>(place * stride + options.steps_offset));
        break;
      }
      case Spacing::trailing:
        times.push_back(std::nearbyint(all - at * all / n) - 1);
        break;
      case Spacing::linspace: {
        const double parts = without_zero ? n : n - 1;
        const double time = parts > 0 ? (all - 1) * (1 - at / parts) : (without_zero ? all - 1 : 0);
        times.push_back(rounded ? std::nearbyint(time) : time);
        break;
      }
    }
  }
  return times;
}

std::vector<double> sigma_table(const std::vector<double>& alphas) {
  std::vector<double> table;
  // A schedule that ends without any image: as diffusers has it, 2^-24 of it.
  for (const double alpha : alphas) {
    const double left = alpha > 0 ? alpha : std::ldexp(1.0, -24);
    table.push_back(std::sqrt((1 - left) / left));
  }
  return table;
}

}  // namespace

std::vector<int64_t> ddim_steps(int64_t schedule_steps, const DiscreteOptions& options) {
  std::vector<int64_t> steps;
  for (const double time : spaced(schedule_steps, options, /*without_zero=*/false, /*rounded=*/true))
    steps.push_back(static_cast<int64_t>(time));
  return steps;
}

SigmaPlan plan_sigmas(const std::vector<double>& alphas, ScheduleKind kind, const DiscreteOptions& options) {
  const auto total = static_cast<int64_t>(alphas.size());
  const std::vector<double> table = sigma_table(alphas);
  const bool solver = options.method == Method::dpm || options.method == Method::dpm_sde;
  SigmaPlan plan;
  plan.times = spaced(total, options, solver, solver);
  if (options.karras && solver) {
    plan.sigmas = karras_sigmas(table.back(), table.front(), options.steps);
    for (size_t i = 0; i < plan.times.size(); ++i) {
      const double time = step_of_sigma(table, plan.sigmas[i]);
      // Of cosine schedules diffusers cuts off what others have rounded.
      plan.times[i] = kind == ScheduleKind::cosine ? std::trunc(time) : std::nearbyint(time);
    }
  } else {
    for (const double time : plan.times) plan.sigmas.push_back(interpolated(table, time));
    if (options.karras) {
      plan.sigmas = karras_sigmas(plan.sigmas.front(), plan.sigmas.back(), options.steps);
      for (size_t i = 0; i < plan.times.size(); ++i) plan.times[i] = step_of_sigma(table, plan.sigmas[i]);
    }
  }
  plan.sigmas.push_back(options.final_sigma == FinalSigma::zero ? 0 : table.front());
  return plan;
}

}  // namespace tessera::diffusion
