// Images as tokens that a task may drop, reorder, mask and condition before the blocks see them: masked and
// autoregressive pre-training, diffusion, dense prediction. Models with one grid throughout support it
// (models/base/isotropic.h).
//
//   Tokens tokens = encoder.tokenise(images, context);
//   tokens = encoder.keep(tokens, visible);                 // [batch, kept] indices of patches
//   Encoded encoded = encoder.encode(tokens, context);
#pragma once

#include <string>
#include <vector>

#include "nn/attention.h"
#include "nn/context.h"

namespace tessera::models {

// The tokens of a sequence by kind. First the non-patch tokens `before` the patches, then the patches, then
// the other non-patch tokens. `middle` non-patch tokens are among the patches, before number patches / 2.
struct TokenPlaces {
  int64_t rows = 0, columns = 0;  // the grid that the patches are from
  int64_t before = 0, middle = 0, behind = 0;
  // The kept patches in their order: [batch, kept] int64 into the grid's row-major order. Undefined: all.
  torch::Tensor kept = {};

  int64_t patches() const { return kept.defined() ? kept.size(1) : rows * columns; }
  int64_t count() const { return before + middle + patches() + behind; }
  // Returns the positions of the non-patch tokens in the sequence, ascending.
  std::vector<int64_t> others() const;
  // Returns the patches of x [batch, count(), width]: [batch, patches(), width].
  torch::Tensor patches_of(const torch::Tensor& x) const;
  // Returns the patches as a map, [batch, width, rows, columns]. Fails if patches were dropped or moved.
  torch::Tensor map_of(const torch::Tensor& x) const;
  // Returns the positions in this sequence of the tokens that remain if each sample keeps only these patches:
  // index [batch, n] into patches() -> int64 [batch, n + non-patch tokens].
  torch::Tensor chosen(const torch::Tensor& index) const;
  // Returns the positions of each sample's kept tokens in the sequence of the whole grid, [batch, count()].
  torch::Tensor on_the_grid() const;
};

// The input of the first block, and the additional inputs of every block.
struct Tokens : TokenPlaces {
  torch::Tensor x = {};  // [batch, count(), width], absolute positions added
  // Rotary positions, biases and masks of attention. After keep(), a task may add a bias of its own, [batch
  // or 1, heads or 1, tokens, tokens].
  nn::AttentionExtras extras = {};
};

struct Encoded : TokenPlaces {
  torch::Tensor tokens = {};             // [batch, count(), width], after the last block and its norm
  torch::Tensor last = {};               // the same before that norm
  std::vector<torch::Tensor> maps = {};  // one per requested block, as Backbone::features returns them
};

class TokenEncoder {
 public:
  static constexpr const char* kAbility = "encodes tokens that a task has chosen";
  virtual ~TokenEncoder() = default;

  virtual int64_t token_width() const = 0;
  virtual Tokens tokenise(const torch::Tensor& images, const nn::Context& context = {}) = 0;
  // Keeps only those patches, in that order: `index` [batch, kept] int64 into the current patches. Non-patch
  // tokens are kept. Every token keeps its position, rotation and bias; a causal model reads the patches in
  // their new order. Fails if keep_refusal() is not empty.
  virtual Tokens keep(const Tokens& tokens, const torch::Tensor& index) const = 0;
  // Returns why this model needs all of its patches ("model.peg = true reads the neighbours of every patch");
  // empty if it does not.
  virtual std::string keep_refusal() const { return ""; }
  // Runs all blocks. `blocks` (counted from 0) selects the returned maps, which need all patches.
  virtual Encoded encode(const Tokens& tokens, const nn::Context& context = {},
                         const std::vector<int64_t>& blocks = {}) = 0;
  // Applies the norm after the last block to tokens [batch, tokens, width] that were added to its output.
  virtual torch::Tensor last_norm(const torch::Tensor& last) = 0;
  // Returns the vector that a class head reads, [batch, embed_width()]: for tokenised images Backbone::embed.
  virtual torch::Tensor pool(const Encoded& encoded, const nn::Context& context = {}) = 0;
};

// Fails unless `index` is [batch, kept] int64; on a CPU, with values in 0 … patches - 1.
void check_index(const torch::Tensor& index, int64_t batch, int64_t patches);
// Gather the tokens of each sample at `places` [batch, chosen] int64: rows of x [batch, tokens, width], of a
// rotation or of a bias. Rotation and bias get a sample axis; undefined stays undefined.
torch::Tensor rows_at_places(const torch::Tensor& x, const torch::Tensor& places);
nn::Rotation rotation_at_places(const nn::Rotation& rotation, const torch::Tensor& places);
torch::Tensor bias_at_places(const torch::Tensor& bias, const torch::Tensor& places);

}  // namespace tessera::models
