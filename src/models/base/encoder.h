// Images as tokens that a task may drop, reorder, mask and condition before the blocks see them: masked and
// autoregressive pre-training, diffusion, dense prediction. Models with one grid throughout can do it
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

// The kinds of tokens in a sequence, in their order: `before` ones that are no patches, the patches, `behind`
// ones; and `middle` ones among the patches, in front of number patches / 2.
struct TokenPlaces {
  int64_t rows = 0, columns = 0;  // the grid that the patches are from
  int64_t before = 0, middle = 0, behind = 0;
  // The patches that there are, in their order: [batch, kept] int64 into the grid's row-major order.
  // Undefined: all of them.
  torch::Tensor kept = {};

  int64_t patches() const { return kept.defined() ? kept.size(1) : rows * columns; }
  int64_t count() const { return before + middle + patches() + behind; }
  // Places in the sequence of the tokens that are no patches, ascending.
  std::vector<int64_t> others() const;
  // The patches of x [batch, count(), width]: [batch, patches(), width].
  torch::Tensor patches_of(const torch::Tensor& x) const;
  // A map of them, [batch, width, rows, columns]; fails where patches were dropped or moved.
  torch::Tensor map_of(const torch::Tensor& x) const;
  // Places in this sequence of the tokens that each sample has once these patches of it alone are kept: index
  // [batch, n] into patches() -> [batch, n and the others] int64.
  torch::Tensor chosen(const torch::Tensor& index) const;
  // Places in the sequence of the whole grid of the tokens of each sample, [batch, count()]; for kept ones.
  torch::Tensor on_the_grid() const;
};

// The input of the first block, and what every block is told besides.
struct Tokens : TokenPlaces {
  torch::Tensor x = {};  // [batch, count(), width], absolute positions added
  // Rotary positions, biases and masks of attention. A task may put a bias of its own here, [batch or 1,
  // heads or 1, tokens, tokens] added to what is there; after keep.
  nn::AttentionExtras extras = {};
};

struct Encoded : TokenPlaces {
  torch::Tensor tokens = {};  // [batch, count(), width], after the last block and the norm behind it
  torch::Tensor last = {};    // the same before that norm
  std::vector<torch::Tensor> maps = {};  // of the blocks asked for, as Backbone::features gives them
};

class TokenEncoder {
 public:
  static constexpr const char* kAbility = "encodes tokens that a task has chosen";
  virtual ~TokenEncoder() = default;

  virtual int64_t token_width() const = 0;
  virtual Tokens tokenise(const torch::Tensor& images, const nn::Context& context = {}) = 0;
  // The tokens with those patches alone, in that order: `index` [batch, kept] int64 into the patches that
  // there are. Tokens that are no patches stay. Every token keeps its position, rotation and bias; a causal
  // model reads the patches in their new order. Fails where keep_refusal() says why.
  virtual Tokens keep(const Tokens& tokens, const torch::Tensor& index) const = 0;
  // The reason why this model needs all of its patches ("model.peg = true reads the neighbours of every
  // patch"); empty if it does not.
  virtual std::string keep_refusal() const { return ""; }
  // Runs all blocks. `blocks` (counted from 0) asks for their maps, for which all patches must be there.
  virtual Encoded encode(const Tokens& tokens, const nn::Context& context = {},
                         const std::vector<int64_t>& blocks = {}) = 0;
  // The norm behind the last block, of tokens [batch, tokens, width] that joined its output.
  virtual torch::Tensor last_norm(const torch::Tensor& last) = 0;
  // The vector that a class head reads, [batch, embed_width()]: for tokenised images Backbone::embed.
  virtual torch::Tensor pool(const Encoded& encoded, const nn::Context& context = {}) = 0;
};

// Fails unless `index` is [batch, kept] int64 into so many patches.
void check_index(const torch::Tensor& index, int64_t batch, int64_t patches);
// Rows of x [batch, tokens, width], a rotation, or a bias, for the tokens of each sample at `places` [batch,
// chosen] int64 among those that they are for. Rotation and bias get a sample axis; undefined stays
// undefined.
torch::Tensor rows_at_places(const torch::Tensor& x, const torch::Tensor& places);
nn::Rotation rotation_at_places(const nn::Rotation& rotation, const torch::Tensor& places);
torch::Tensor bias_at_places(const torch::Tensor& bias, const torch::Tensor& places);

}  // namespace tessera::models
