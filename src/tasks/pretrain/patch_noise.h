// Noise levels of denoising patch decoders (DARL, Li, Bornschein & Chen 2024, Sections 3.3 and B.5): gamma is
// the share of a noised patch that is signal, x = sqrt(gamma) x0 + sqrt(1 - gamma) e.
//
//   beta    gamma ~ Beta(a, b)
//   ddpm    gamma = prod (1 - beta_s), beta from 1e-4 to 0.02 in 1000 steps, a step at random (Ho et al. 2020)
//   linear  gamma falls evenly from 1 to 0 over 1000 steps, a step at random (l-DAE, Chen et al. 2024)
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

// Draws of Beta(a, b) by logarithms: shapes far below 1 give values below the smallest double, which become 0
// and never a quotient of two zeros.
double draw_beta(RandomStream& stream, double a, double b);
double draw_gamma(RandomStream& stream, const NoiseLevels& levels);

// The levels of sampling in `steps` steps, [0] = 1 (clean) to [steps]: evenly spaced steps of DDPM's schedule,
// evenly spaced levels of the others; the last is at least 1e-4, for a decoder that predicts noise divides by
// its root.
std::vector<double> sampling_gammas(NoiseSchedule schedule, int64_t steps);

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::NoiseSchedule> {
  static constexpr std::array names = {"beta", "ddpm", "linear"};
};
