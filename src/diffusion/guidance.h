// Classifier-free guidance (Ho & Salimans 2022): what the class adds to a prediction, more of it.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::diffusion {

struct Guidance {
  double scale = 1;  // 1 = none
  int64_t channels =
      0;  // the first so many are guided: 3 as published for latents of 4, 0 = all of the image's
  double rescale =
      0;  // share of the guided prediction that gets the deviation of the one with the class (Lin et al. 2024)
  // Guided only where the share of noise steps left, 0 (clean) to 1, is between these (Kynkäänniemi et al. 2024).
  double from = 0, to = 1;

  bool on() const { return scale != 1; }
  bool applies(double noise) const { return on() && noise >= from && noise <= to; }
  // Usage errors that name the option.
  void check() const;
};

// without + scale (with - without) in the guided channels of the first `image_channels`; all others are those with the
// class. [batch, channels, height, width] each.
torch::Tensor guided(const torch::Tensor& with, const torch::Tensor& without, const Guidance& guidance,
                     int64_t image_channels);

}  // namespace tessera::diffusion
