// Images as tokens of a codebook: what a discrete autoencoder's encoder gives a model that reads or predicts
// tokens (DALL-E, Ramesh et al. 2021; BEiT; DARL's Table 16).
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <string>

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

// The other half of a discrete autoencoder: what makes pictures of tokens.
class DecodesTokens {
 public:
  virtual ~DecodesTokens() = default;
  // Tokens int64 [batch, rows, columns] -> pixels [batch, 3, rows * cell, columns * cell] in [0, 1], of the tokeniser's cells.
  virtual torch::Tensor pictures(const torch::Tensor& tokens) = 0;
};

// The tokens of images [batch, 3, height, width] as they enter a model, one for each cell of a grid: int64
// [batch, rows * columns].
using TokensOf = std::function<torch::Tensor(const torch::Tensor& images, int64_t rows, int64_t columns)>;

// A model that embeds the tokens of an image instead of its pixels, where its settings say so. The tokeniser is no
// part of it: whoever builds the model hands over what gives tokens.
class ReadsTokens {
 public:
  virtual ~ReadsTokens() = default;
  virtual int64_t input_codes() const = 0;                 // 0 = the model reads pixels
  virtual const std::string& input_tokeniser() const = 0;  // its weights
  // With the check sum of those weights.
  virtual void set_tokens(TokensOf tokens, std::string checksum) = 0;
  virtual const std::string& tokens_checksum() const = 0;  // "" before
  // Tokens int64 [batch] as CausalStep::step() takes them: [batch, 1, width].
  virtual torch::Tensor embed_tokens(const torch::Tensor& tokens) const = 0;
};

}  // namespace tessera::models
