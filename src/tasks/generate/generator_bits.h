// How well a generator predicts images: bits a dimension of their negative log-likelihood.
#pragma once

#include <span>

#include "diffusion/noise_process.h"
#include "models/base/denoiser.h"

namespace tessera::tasks {

// [batch] float64, for images [batch, channels, height, width] as the network has them and their labels [batch].
// Interpolants: the density along the ordinary equation from image to noise (Song et al. 2021, section 4.3), the trace
// of its divergence by one draw of signs. Diffusion: the bound of the whole chain (Ho et al. 2020, eq. 5), every step
// once, with one draw of noise each.
//
// `levels`: 256 for 8-bit images between -1 and 1, whose values an interpolant first spreads over the width of a
// level, so that bits are those of the stored numbers; 0 for latents, whose density itself is measured, which a bound
// of the chain has no end for: a usage error. All that is drawn of image i follows from seeds[i].
torch::Tensor bits_per_dimension(models::Denoiser& network, const NoiseProcess& process,
                                 const torch::Tensor& images, const torch::Tensor& labels,
                                 std::span<const uint64_t> seeds, int64_t levels);

}  // namespace tessera::tasks
