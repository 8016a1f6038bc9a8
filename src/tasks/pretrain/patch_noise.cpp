#include "tasks/pretrain/patch_noise.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "core/threads.h"
#include "tasks/pretrain/patch_drawing.h"

namespace tessera::tasks {

namespace {

constexpr int64_t kSteps = 1000;
constexpr double kLeastSignal = 1e-4;

// DDPM's gamma after each step; [0] = 1.
const std::vector<double>& ddpm_gammas() {
  static const std::vector<double> gammas = [] {
    std::vector<double> out = {1};
    for (int64_t s = 0; s < kSteps; ++s)
      out.push_back(out.back() *
                    (1 - (1e-4 + (0.02 - 1e-4) * static_cast<double>(s) / static_cast<double>(kSteps - 1))));
    return out;
  }();
  return gammas;
}

// log of a Gamma(shape, 1) draw; if shape < 1, Gamma(shape + 1) times u^(1 / shape).
double draw_log_gamma(RandomStream& stream, double shape) {
  if (shape >= 1) return std::log(stream.gamma(shape));
  const double boost = std::log(1 - stream.uniform()) / shape;
  return std::log(stream.gamma(shape + 1)) + boost;
}

}  // namespace

double draw_beta(RandomStream& stream, double a, double b) {
  const double x = draw_log_gamma(stream, a), y = draw_log_gamma(stream, b);
  return 1 / (1 + std::exp(y - x));
}

double draw_gamma(RandomStream& stream, const NoiseLevels& levels) {
  if (levels.schedule == NoiseSchedule::beta) return draw_beta(stream, levels.a, levels.b);
  const int64_t step = stream.integer(1, kSteps);
  if (levels.schedule == NoiseSchedule::ddpm) return ddpm_gammas()[static_cast<size_t>(step)];
  return 1 - static_cast<double>(step) / static_cast<double>(kSteps);
}

std::vector<double> sampling_gammas(NoiseSchedule schedule, int64_t steps) {
  check(steps >= 1 && steps <= kSteps, "sampling in ", steps, " steps, must be 1 to ", kSteps);
  std::vector<double> gammas = {1};
  for (int64_t s = 1; s <= steps; ++s) {
    const double share = static_cast<double>(s) / static_cast<double>(steps);
    const double gamma =
        schedule == NoiseSchedule::ddpm
            ? ddpm_gammas()[static_cast<size_t>(std::llround(share * static_cast<double>(kSteps)))]
            : 1 - share;
    gammas.push_back(std::max(gamma, kLeastSignal));
  }
  return gammas;
}

models::PatchNoise patch_noise_of(std::span<const uint64_t> seeds, int64_t pixels,
                                  const torch::TensorOptions& options) {
  return [=](int64_t patch, int64_t step) {
    const auto images = static_cast<int64_t>(seeds.size());
    torch::Tensor out = torch::empty({images, pixels}, torch::kFloat64);
    double* rows = out.data_ptr<double>();
    parallel_for(images, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        RandomStream stream(seeds[static_cast<size_t>(i)], "completion", static_cast<uint64_t>(patch),
                            static_cast<uint64_t>(step));
        for (int64_t at = 0; at < pixels; ++at) rows[i * pixels + at] = stream.normal();
      }
    });
    return out.to(options);
  };
}

}  // namespace tessera::tasks
