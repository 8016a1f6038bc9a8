// Likelihood of images under a generator: negative log-likelihood in bits per dimension.
#pragma once

#include <span>

#include "diffusion/noise_process.h"
#include "models/base/denoiser.h"

namespace tessera::tasks {

// Returns [batch] float64 for images [batch, channels, height, width] in the network's range and labels
// [batch].
// Interpolants: the density along the ordinary equation from image to noise (Song et al. 2021, section 4.3),
// with the trace of its divergence estimated by one draw of signs. Diffusion: the bound of the whole chain
// (Ho et al. 2020, eq. 5), every step once, with one draw of noise each.
//
// `levels` is 256 for 8-bit images in [-1, 1]. An interpolant dequantises them uniformly over a level, so
// bits refer to the stored values. 0 for latents: measures their density; a usage error for diffusion, where
// the bound needs levels. All draws for image i depend only on seeds[i].
torch::Tensor bits_per_dimension(models::Denoiser& network, const diffusion::NoiseProcess& process,
                                 const torch::Tensor& images, const torch::Tensor& labels,
                                 std::span<const uint64_t> seeds, int64_t levels);

}  // namespace tessera::tasks
