// Discrete codes: the nearest vector of a codebook (van den Oord et al. 2017), relaxed samples of a
// categorical distribution (Jang et al. 2017), and the likelihood of pixels in DALL-E's autoencoder (Ramesh
// et al. 2021). Channels are last: z and scores are [..., channels].
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::models {

// Returns the code nearest to each vector by squared distance, the first if several tie: z [..., dim],
// codebook [codes, dim] -> int64 [...].
torch::Tensor nearest_codes(const torch::Tensor& z, const torch::Tensor& codebook);

//   loss = mean (q - sg z)^2 + beta mean (sg q - z)^2,   passed = z + sg(q - z)
struct Quantised {
  torch::Tensor index = {};   // int64 [...]
  torch::Tensor codes = {};   // q: the codes' vectors, [..., dim]
  torch::Tensor passed = {};  // q, with its gradient passed to z (straight-through)
  torch::Tensor codebook_loss = {}, commitment_loss = {};  // the two means, scalars
};
Quantised quantise(const torch::Tensor& z, const torch::Tensor& codebook);

// Returns exp of the entropy of the codes' frequencies: the effective number of codes in use. A scalar
// tensor, float64.
torch::Tensor code_perplexity(const torch::Tensor& index, int64_t codes);

// Moves a codebook by moving averages instead of a gradient:
//   n = decay n + (1 - decay) count,  m = decay m + (1 - decay) sum of z,
//   codebook = m / ((n + eps) / (sum n + codes eps) sum n)
// Updates `counts` [codes] and `sums` [codes, dim] in place; returns the new codebook.
torch::Tensor move_codebook(torch::Tensor& counts, torch::Tensor& sums, const torch::Tensor& z,
                            const torch::Tensor& index, double decay, double eps = 1e-5);

// Returns the codes' weights, softmax((scores + gumbel) / temperature) over the last axis. `hard`: one-hot of
// the largest weight, with the gradient of the soft weights. `gumbel`: random draws of -log(-log u).
torch::Tensor gumbel_weights(const torch::Tensor& scores, const torch::Tensor& gumbel, double temperature,
                             bool hard);
// Computes KL(softmax(scores) || uniform) at each position, [...].
torch::Tensor divergence_from_uniform(const torch::Tensor& scores);

// Computes the negative log-likelihood of pixels in [0, 1] under the logit-Laplace distribution (DALL-E,
// appendix A.3), elementwise. Pixels are first mapped to (1 - 2 eps) x + eps.
inline constexpr double kLogitLaplaceEps = 0.1;
torch::Tensor logit_laplace(const torch::Tensor& pixels, const torch::Tensor& mu, const torch::Tensor& log_b,
                            double eps = kLogitLaplaceEps);
// Maps a distribution's mu back to pixels in [0, 1].
torch::Tensor logit_laplace_pixels(const torch::Tensor& mu, double eps = kLogitLaplaceEps);

}  // namespace tessera::models
