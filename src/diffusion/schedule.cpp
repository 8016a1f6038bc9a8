#include "diffusion/schedule.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include "core/error.h"
#include "core/text.h"

namespace tessera::diffusion {
namespace {

constexpr int64_t kMostSteps = 1'000'000;

std::vector<double> evenly(double from, double to, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count), from);
  const double step = count > 1 ? (to - from) / static_cast<double>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = from + step * static_cast<double>(i);
  if (count > 1) values.back() = to;
  return values;
}

// Returns the share of the image that remains after a share of the steps, up to a factor.
double left_of(ScheduleKind kind, double share) {
  constexpr double kOffset = 0.008;
  if (kind == ScheduleKind::exponential) return std::exp(-12 * share);
  if (kind == ScheduleKind::laplace) {
    const double from_middle = 0.5 - share;
    const double log_snr =
        -0.5 * std::copysign(1.0, from_middle) * std::log(1 - 2 * std::abs(from_middle) + 1e-6);
    return std::sqrt(1 / (1 + std::exp(-log_snr)));
  }
  const double c = std::cos((share + kOffset) / (1 + kOffset) * std::numbers::pi / 2);
  return c * c;
}

std::vector<double> betas_of_left(ScheduleKind kind, int64_t steps) {
  constexpr double kMost = 0.999;
  const auto left = [kind](double share) { return left_of(kind, share); };
  std::vector<double> betas;
  const auto count = static_cast<double>(steps);
  for (int64_t i = 0; i < steps; ++i) {
    const auto at = static_cast<double>(i);
    betas.push_back(std::min(1 - left((at + 1) / count) / left(at / count), kMost));
  }
  return betas;
}

template <class Function>
std::vector<double> mapped(const std::vector<double>& values, const Function& function) {
  std::vector<double> out;
  out.reserve(values.size());
  for (const double value : values) out.push_back(function(value));
  return out;
}

// Returns every n-th step, with n chosen to give `count` steps.
std::vector<int64_t> every_nth(int64_t steps, int64_t count, const std::string& spacing) {
  for (int64_t stride = 1; stride < steps; ++stride)
    if ((steps + stride - 1) / stride == count) {
      std::vector<int64_t> kept;
      for (int64_t t = 0; t < steps; t += stride) kept.push_back(t);
      return kept;
    }
  fail_usage("steps '", printable(spacing), "': no whole stride makes ", count, " steps of ", steps);
}

}  // namespace

std::vector<double> make_betas(const ScheduleOptions& options) {
  if (options.steps < 1 || options.steps > kMostSteps)
    fail_usage("a schedule of ", options.steps, " steps, must be 1 to ", kMostSteps);
  const double scale = 1000.0 / static_cast<double>(options.steps);
  const double start = options.beta_start > 0 ? options.beta_start : scale * 0.0001,
               end = options.beta_end > 0 ? options.beta_end : scale * 0.02;
  std::vector<double> betas;
  switch (options.kind) {
    case ScheduleKind::linear:
      betas = evenly(start, end, options.steps);
      break;
    case ScheduleKind::scaled_linear:
      betas = mapped(evenly(std::sqrt(start), std::sqrt(end), options.steps),
                     [](double root) { return root * root; });
      break;
    case ScheduleKind::sigmoid:
      betas = mapped(evenly(-6, 6, options.steps),
                     [&](double at) { return start + (end - start) / (1 + std::exp(-at)); });
      break;
    case ScheduleKind::cosine:
    case ScheduleKind::exponential:
    case ScheduleKind::laplace:
      betas = betas_of_left(options.kind, options.steps);
      break;
  }
  if (!options.betas.empty()) {
    if (std::ssize(options.betas) != options.steps)
      fail_usage("a schedule of ", options.steps, " steps has ", options.betas.size(), " betas");
    betas = options.betas;
  }
  for (const double beta : betas)
    if (!(beta > 0 && beta <= 1))
      fail_usage("a schedule of ", options.steps, " steps has beta = ", shortest(beta),
                 ", must be above 0 and at most 1");
  return options.zero_terminal_snr ? zero_terminal_snr(betas) : betas;
}

std::vector<double> zero_terminal_snr(const std::vector<double>& betas) {
  std::vector<double> roots = mapped(cumulative_alphas(betas), [](double a) { return std::sqrt(a); });
  const double first = roots.front(), last = roots.back();
  for (double& root : roots) root = (root - last) * (first / (first - last));
  std::vector<double> shifted;
  double before = 1;
  for (const double root : roots) {
    const double left = root * root;
    shifted.push_back(1 - left / before);
    before = left;
  }
  return shifted;
}

std::vector<double> cumulative_alphas(const std::vector<double>& betas) {
  std::vector<double> products;
  double product = 1;
  for (const double beta : betas) products.push_back(product *= 1 - beta);
  return products;
}

std::vector<int64_t> respace(int64_t steps, const std::string& spacing) {
  std::vector<int64_t> kept;
  if (spacing.empty()) {
    kept.resize(static_cast<size_t>(steps));
    std::iota(kept.begin(), kept.end(), 0);
    return kept;
  }
  const auto number = [&](const std::string& word) {
    const auto count = parse_int(word);
    if (!count || *count < 1)
      fail_usage("steps '", printable(spacing), "': must be a number as 250, several as 10,15,20, or ddim50");
    if (*count > steps)
      fail_usage("steps '", printable(spacing), "': ", *count, " are more than the ", steps,
                 " of the schedule");
    return *count;
  };
  if (spacing.starts_with("ddim")) return every_nth(steps, number(spacing.substr(4)), spacing);
  const std::vector<std::string> sections = split(spacing, ',');
  const auto count = static_cast<int64_t>(sections.size());
  int64_t start = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = steps / count + (i < steps % count ? 1 : 0),
                  wanted = number(sections[static_cast<size_t>(i)]);
    if (wanted > size)
      fail_usage("steps '", printable(spacing), "': ", wanted, " of a section of ", size, " steps");
    const double stride = wanted > 1 ? static_cast<double>(size - 1) / static_cast<double>(wanted - 1) : 1;
    double at = 0;  // accumulated step by step, as in the published code
    for (int64_t k = 0; k < wanted; ++k, at += stride)
      kept.push_back(start + static_cast<int64_t>(std::nearbyint(at)));
    start += size;
  }
  return kept;
}

Schedule::Schedule(std::vector<double> given, std::vector<int64_t> map)
    : betas(std::move(given)), timestep_map(std::move(map)) {
  check(!betas.empty(), "a schedule needs a step");
  alphas_cumprod = cumulative_alphas(betas);
  alphas_cumprod_prev = alphas_cumprod;
  alphas_cumprod_prev.insert(alphas_cumprod_prev.begin(), 1);
  alphas_cumprod_prev.pop_back();
  alphas_cumprod_next = alphas_cumprod;
  alphas_cumprod_next.erase(alphas_cumprod_next.begin());
  alphas_cumprod_next.push_back(0);
  sqrt_alphas_cumprod = mapped(alphas_cumprod, [](double a) { return std::sqrt(a); });
  sqrt_one_minus_alphas_cumprod = mapped(alphas_cumprod, [](double a) { return std::sqrt(1 - a); });
  log_one_minus_alphas_cumprod = mapped(alphas_cumprod, [](double a) { return std::log(1 - a); });
  sqrt_recip_alphas_cumprod = mapped(alphas_cumprod, [](double a) { return std::sqrt(1 / a); });
  sqrt_recipm1_alphas_cumprod = mapped(alphas_cumprod, [](double a) { return std::sqrt(1 / a - 1); });
  for (size_t t = 0; t < betas.size(); ++t) {
    const double left = alphas_cumprod[t], before = alphas_cumprod_prev[t];
    posterior_variance.push_back(betas[t] * (1 - before) / (1 - left));
    posterior_mean_coef1.push_back(betas[t] * std::sqrt(before) / (1 - left));
    posterior_mean_coef2.push_back((1 - before) * std::sqrt(1 - betas[t]) / (1 - left));
  }
  std::vector<double> clipped = posterior_variance;
  clipped.front() = clipped.size() > 1 ? clipped[1] : betas.front();
  posterior_log_variance_clipped = mapped(clipped, [](double variance) { return std::log(variance); });
  if (timestep_map.empty()) {
    timestep_map.resize(betas.size());
    std::iota(timestep_map.begin(), timestep_map.end(), 0);
  }
}

Schedule Schedule::respaced(const std::vector<int64_t>& kept) const {
  std::vector<double> fewer;
  std::vector<int64_t> map;
  double before = 1;
  for (const int64_t t : kept) {
    check(t >= 0 && t < steps(), "step ", t, " is kept of a schedule of ", steps());
    const double left = alphas_cumprod[static_cast<size_t>(t)];
    fewer.push_back(1 - left / before);
    map.push_back(timestep_map[static_cast<size_t>(t)]);
    before = left;
  }
  return Schedule(std::move(fewer), std::move(map));
}

std::vector<double> signal_to_noise(const std::vector<double>& alphas_cumprod) {
  return mapped(alphas_cumprod, [](double a) { return a / (1 - a); });
}

std::vector<double> min_snr_weights(const std::vector<double>& snr, double gamma, Prediction prediction) {
  return mapped(snr, [&](double ratio) {
    const double clipped = std::min(ratio, gamma);
    if (prediction == Prediction::x0) return clipped;
    return clipped / (prediction == Prediction::v ? ratio + 1 : ratio);
  });
}

}  // namespace tessera::diffusion
