// Noise levels of denoising patch decoders (DARL, Li, Bornschein & Chen 2024, Sections 3.3 and B.5). gamma is
// the signal share of a noised patch: x = sqrt(gamma) x0 + sqrt(1 - gamma) e.
//
//   beta    gamma ~ Beta(a, b)
//   ddpm    gamma = prod (1 - beta_s), beta from 1e-4 to 0.02 in 1000 steps, at a random step (Ho et al.
//   2020)
//   linear  gamma falls evenly from 1 to 0 over 1000 steps, at a random step (l-DAE, Chen et al. 2024)
#pragma once

#include <cstdint>
#include <vector>

#include "core/config.h"
#include "core/random.h"

namespace tessera::tasks {

enum class NoiseSchedule { beta, ddpm, linear };

struct NoiseLevels {
  NoiseSchedule schedule = NoiseSchedule::beta;
  double a = 0.03, b = 1;
};

// Draws from Beta(a, b) in log space. For shapes far below 1, values that underflow become 0, and 0 / 0
// cannot occur.
double draw_beta(RandomStream& stream, double a, double b);
double draw_gamma(RandomStream& stream, const NoiseLevels& levels);

// Returns the levels for sampling in `steps` steps, from [0] = 1 (clean) to [steps]. Evenly spaced steps for
// ddpm, evenly spaced levels otherwise. The last is at least 1e-4, because a decoder that predicts noise
// divides by its root.
std::vector<double> sampling_gammas(NoiseSchedule schedule, int64_t steps);

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::NoiseSchedule> {
  static constexpr std::array names = {"beta", "ddpm", "linear"};
};
