// Images as tokens of a codebook: the output of a discrete autoencoder's encoder, for a model that reads or
// predicts tokens (DALL-E, Ramesh et al. 2021; BEiT; DARL's Table 16).
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
  virtual int64_t cell() const = 0;   // side in pixels of a token's cell
  // Encodes pixels [batch, 3, height, width] in [0, 1], sides of whole cells, as [batch, rows, columns,
  // outputs]. The outputs are a score of each code, or a vector near that of the cell's code.
  virtual torch::Tensor code_outputs(const torch::Tensor& pixels) = 0;
  // Returns the tokens of those outputs, int64 [batch, rows, columns].
  virtual torch::Tensor tokens_of(const torch::Tensor& outputs) const = 0;
  // Returns the vectors of the codes, [codes, outputs], which the optimiser does not update; undefined if the
  // outputs are scores.
  virtual torch::Tensor code_vectors() const { return {}; }

  torch::Tensor tokens(const torch::Tensor& pixels) { return tokens_of(code_outputs(pixels)); }
};

// The other half of a discrete autoencoder: decodes tokens into images.
class DecodesTokens {
 public:
  virtual ~DecodesTokens() = default;
  // Decodes tokens int64 [batch, rows, columns] into pixels in [0, 1], [batch, 3, rows * cell, columns *
  // cell], with the tokeniser's cells.
  virtual torch::Tensor pictures(const torch::Tensor& tokens) = 0;
};

// Returns the tokens of images [batch, 3, height, width] as a model reads them, one for each cell of a grid:
// int64 [batch, rows * columns].
using TokensOf = std::function<torch::Tensor(const torch::Tensor& images, int64_t rows, int64_t columns)>;

// A model that can be configured to embed the tokens of an image instead of its pixels. It does not contain
// the tokeniser: the code that builds the model passes in a function that returns the tokens.
class ReadsTokens {
 public:
  virtual ~ReadsTokens() = default;
  virtual int64_t input_codes() const = 0;                 // 0 = the model reads pixels
  virtual const std::string& input_tokeniser() const = 0;  // its weights
  // Sets the function that returns tokens, with the checksum of its weights.
  virtual void set_tokens(TokensOf tokens, std::string checksum) = 0;
  virtual const std::string& tokens_checksum() const = 0;  // "" before that
  // Embeds tokens int64 [batch] as input of CausalStep::step(): [batch, 1, width].
  virtual torch::Tensor embed_tokens(const torch::Tensor& tokens) const = 0;
};

}  // namespace tessera::models
