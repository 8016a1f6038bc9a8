// Images as tokens of a codebook: what a discrete autoencoder's encoder gives a model that reads or predicts
// tokens (DALL-E, Ramesh et al. 2021; BEiT; DARL's Table 16).
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::models {

class Tokeniser {
 public:
  static constexpr const char* kAbility = "gives an image's tokens";
  virtual ~Tokeniser() = default;

  virtual int64_t codes() const = 0;  // tokens are 0 … codes() - 1
  virtual int64_t cell() const = 0;   // side in pixels of what a token stands for
  // Pixels [batch, 3, height, width] in [0, 1], sides of whole cells -> what the encoder says of each cell,
  // [batch, rows, columns, outputs]: a score of each code, or a vector near that of its code.
  virtual torch::Tensor code_outputs(const torch::Tensor& pixels) = 0;
  // Those outputs' tokens, int64 [batch, rows, columns].
  virtual torch::Tensor tokens_of(const torch::Tensor& outputs) const = 0;
  // The vectors of the codes, [codes, outputs], which the optimiser leaves alone; undefined where the outputs
  // are scores.
  virtual torch::Tensor code_vectors() const { return {}; }

  torch::Tensor tokens(const torch::Tensor& pixels) { return tokens_of(code_outputs(pixels)); }
};

}  // namespace tessera::models
