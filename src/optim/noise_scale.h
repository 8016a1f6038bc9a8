// The gradient noise scale (McCandlish et al. 2018, Appendix A.1): the batch size, in samples, at which noise
// and gradient contribute equally to a step.
//
//   |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b),  S = (|G_b|^2 - |G_B|^2) / (1 / b - 1 / B),  scale = S / |G|^2
//
// G_b: the mean gradient of a piece of b samples; G_B: that of the whole step. Both estimates are averaged
// over steps before they are divided, because their ratio in one step is biased.
#pragma once

#include <string>

#include "core/value.h"

namespace tessera::train {

class NoiseScale {
 public:
  // `piece_square`, `whole_square`: squared norms of the mean gradients of `piece` and of `whole` samples.
  // Ignores steps with a single piece, and norms that are not finite.
  void add(double piece_square, double piece, double whole_square, double whole);
  // NaN before the first step, or if the noise hides the gradient.
  double value() const;

  // For the checkpoint.
  Value state() const;
  void load(const Value& state, const std::string& where);

 private:
  static constexpr double kDecay = 0.99;
  double gradient_ = 0, noise_ = 0, weight_ = 0;  // moving averages, and their weight
};

}  // namespace tessera::train
