// The variational bound on the likelihood of images under a denoising patch decoder, in bits per dimension
// (DARL, Li, Bornschein & Chen 2024, Section 3.2 and Appendix E; Ho et al. 2020). For a chain of T levels
// gamma_1 … gamma_T, with gamma_0 = 1:
//
//   bound = KL(q(x_T | x) || N(0, 1)) + sum_{s=2}^{T} w_s E (x - x0(x_s))^2 - log p(x | x_1)
//   w_s   = gamma_(s-1) (1 - alpha_s) / (2 (1 - gamma_s) (1 - gamma_(s-1))),   alpha_s = gamma_s / gamma_(s-1)
//   p(x | x_1): N(x0(x_1), 1 - gamma_1) over the bin of an 8-bit value, the outermost bins open
// The sum over s is estimated without bias from one step in each of `draws` equal strata of 2 … T.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <span>
#include <vector>

#include "models/heads/patch_decoder.h"

namespace tessera::tasks {

struct PatchBound {
  std::vector<double> gammas = {};  // [0] = 1 to [T]
  bool predicts_noise = false;
  int64_t draws = 16;
  // For each value of a patch, float64 [3 patch^2]: the width of an 8-bit bin, and the smallest and largest
  // value, after normalisation.
  torch::Tensor bin = {}, lowest = {}, highest = {};
};

// For a normalised image: (v / 255 - `mean`) / `std`, channels last in a patch.
void set_bins(PatchBound& bound, std::span<const double> mean, std::span<const double> std, int64_t patch);

// Random inputs of the estimate. Draw 0 is for step 1, then there is one draw per stratum. Places are uniform
// in a stratum, [batch, patches] float64; noise has the shape of the pixels.
using BoundPlaces = std::function<torch::Tensor(int64_t index)>;
using BoundNoise = std::function<torch::Tensor(int64_t index)>;

// Returns bits per dimension of each patch, [batch, patches] float64. z and pixels are [batch, patches, …] in
// sequence order.
torch::Tensor bits_per_dimension(const PatchBound& bound, models::PatchDecoder& decoder,
                                 const torch::Tensor& z, const torch::Tensor& pixels,
                                 const BoundPlaces& places, const BoundNoise& noise);

}  // namespace tessera::tasks
