// The auto-encoder for the latents of a generator (Rombach et al. 2022, "High-resolution image synthesis with
// latent diffusion models", Appendix G), trained by its first two terms:
//
//   z = mean + exp(logvar / 2) * noise,   x' = decode(z)
//   loss = mean over pixels of |x' - x|  +  kl_weight * KL(N(mean, exp(logvar)) || N(0, 1)) / pixels
//
// This is the published sum of absolute errors plus kl_weight times the divergence, both divided by the size
// of an image (3 height width). The published training adds a perceptual and an adversarial term; they need
// networks trained on other data.
//
// A sample is an image, with values in [-1, 1]. In addition to the published tensors, files contain
// `latent_scale.running_var`, the variance of the latents; generators multiply latents by its inverse root.
#pragma once

#include "models/base/codec.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

struct VaeConfig {
  double kl_weight = 1e-6;
  template <class V>
  void visit(V& v) {
    v("kl_weight", kl_weight, between(0, 1e6),
      "weight of the divergence against the sum of absolute errors (1e-6 in the published configurations)");
  }
};

// The result of one pass over images; all tensors are [batch].
struct VaePass {
  torch::Tensor decoded = {};  // [batch, 3, height, width]
  torch::Tensor latent = {};   // [batch, channels, rows, columns]
  torch::Tensor error = {};    // mean absolute error
  torch::Tensor kl = {};       // summed over the latent
  torch::Tensor loss = {};
};
// `noise` has the latent's shape; if undefined, the mean is decoded.
VaePass vae_pass(models::LatentCodec& codec, const torch::Tensor& images, const torch::Tensor& noise,
                 double kl_weight);
// For images in [-1, 1], in decibels, [batch]: 10 log10(4 / mean squared error), with decoded values clamped
// to that range.
torch::Tensor psnr(const torch::Tensor& decoded, const torch::Tensor& images);

TaskKind vae_kind();

}  // namespace tessera::tasks
