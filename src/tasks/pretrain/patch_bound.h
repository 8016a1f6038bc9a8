// The variational bound on the likelihood of images under a denoising patch decoder, in bits a dimension (DARL,
// Li, Bornschein & Chen 2024, Section 3.2 and Appendix E; Ho et al. 2020): of a chain of T levels gamma_1 …
// gamma_T, gamma_0 = 1,
//
//   bound = KL(q(x_T | x) || N(0, 1)) + sum_{s=2}^{T} w_s E (x - x0(x_s))^2 - log p(x | x_1)
//   w_s   = gamma_(s-1) (1 - alpha_s) / (2 (1 - gamma_s) (1 - gamma_(s-1))),   alpha_s = gamma_s / gamma_(s-1)
//   p(x | x_1): N(x0(x_1), 1 - gamma_1) over the bin of an 8-bit value, the outermost bins open
// The sum over s is estimated without bias from one step in each of `draws` equal stretches of 2 … T.
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
  // Of a patch's numbers, float64 [3 patch^2]: the width of an 8-bit value's bin, and the smallest and largest
  // value, as they enter the model.
  torch::Tensor bin = {}, lowest = {}, highest = {};
};

// Of a normalised image: values v / 255 less `mean`, divided by `std`, channels last in a patch.
void set_bins(PatchBound& bound, std::span<const double> mean, std::span<const double> std, int64_t patch);

// What the estimate draws: draw `index` (0: step 1; then one for each stretch) of a uniform place in its
// stretch [batch, patches], float64, and of noise as the pixels.
using BoundPlaces = std::function<torch::Tensor(int64_t index)>;
using BoundNoise = std::function<torch::Tensor(int64_t index)>;

// Bits a dimension of each patch, [batch, patches] float64: z and pixels [batch, patches, …] in the order of
// the sequence.
torch::Tensor bits_per_dimension(const PatchBound& bound, models::PatchDecoder& decoder,
                                 const torch::Tensor& z, const torch::Tensor& pixels,
                                 const BoundPlaces& places, const BoundNoise& noise);

}  // namespace tessera::tasks
