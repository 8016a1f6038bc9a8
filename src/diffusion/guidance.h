// Classifier-free guidance (Ho & Salimans 2022): amplifies the effect of the class on a prediction.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "core/config.h"

namespace tessera::diffusion {

struct Guidance {
  double scale = 1;      // 1 = none
  int64_t channels = 0;  // guided leading channels: published models use 3 of 4 latent ones; 0 = the image's
  double rescale =
      0;  // share of the guided prediction rescaled to the deviation with the class (Lin et al. 2024)
  // Guides only while the noise level, 0 (clean) to 1, is between these (Kynkäänniemi et al. 2024).
  double from = 0, to = 1;

  template <class V>
  void visit(V& v) {
    v("cfg", scale, between(0, 1e6), "classifier-free guidance, 1 = none");
    v("cfg_channels", channels, at_least(0), "guide the first channels only, 0 = all (of latents 3)");
    v("cfg_rescale", rescale, between(0, 1), "share that gets the deviation without guidance");
    v("cfg_from", from, between(0, 1), "guide from this share of noise on, 0 is the image");
    v("cfg_to", to, between(0, 1), "guide up to this share of noise, 1 is noise");
  }

  bool on() const { return scale != 1; }
  bool applies(double noise) const { return on() && noise >= from && noise <= to; }
  // Throws a usage error that names the option.
  void check() const;
};

// Returns without + scale (with - without) in the guided channels of the first `image_channels`; the other
// channels come from `with`. All are [batch, channels, height, width].
torch::Tensor guided(const torch::Tensor& with, const torch::Tensor& without, const Guidance& guidance,
                     int64_t image_channels);

}  // namespace tessera::diffusion
