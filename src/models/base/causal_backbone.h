// Token after token through a causal model, with what it remembers of those before: generation.
#pragma once

#include <string>
#include <vector>

#include "models/base/isotropic.h"

namespace tessera::models {

// A model's memory of the tokens so far: keys and values, or the state of its recurrent layers.
struct Cache {
  int64_t batch = 0, tokens = 0;
  // Where in the sequence of an image each token stands, in the order in which they come; empty: one after
  // the other.
  std::vector<int64_t> places = {};
  std::vector<std::vector<torch::Tensor>> blocks;  // each empty before the first token
};

class CausalStep {
 public:
  static constexpr const char* kAbility = "encodes token after token";
  virtual ~CausalStep() = default;

  // The reason why this model cannot with its settings ("model.causal = false sees patches to come"); empty
  // if it can.
  virtual std::string step_refusal() const { return ""; }
  // Before the first token of `batch` sequences on the grid of model.image_size. A usage error where
  // step_refusal() says why.
  virtual Cache start(int64_t batch) const = 0;
  // The next token of each sequence, [batch, 1, width], embedded but without its position, which follows from
  // how many came before -> what encode() gives for it, [batch, 1, width]. In evaluation mode only.
  virtual torch::Tensor step(const torch::Tensor& tokens, Cache& cache) = 0;

  // What predicts the next patch needs of a model. The reason why a token sees what comes after it even in
  // pre-training; empty if none does. A model may be causal there whatever its setting for classes says.
  virtual std::string next_refusal() const { return step_refusal(); }
  // As start(), for tokens that stand at `places` of the sequence; a usage error where next_refusal() says
  // why.
  virtual Cache start_at(int64_t batch, std::vector<int64_t> places) const = 0;
  // The patches of images whose sides are whole patches, as step() takes them: [batch, patches, width].
  virtual torch::Tensor embed_patches(const torch::Tensor& images) const = 0;
  // The tokens in front of all patches, as step() takes them: [1, number, width]; undefined where there is
  // none.
  virtual torch::Tensor front_tokens() const { return {}; }
};

// Isotropic backbones that can: a family gives its positions and one block's step.
class CausalBackbone : public IsotropicBackbone, public CausalStep {
 public:
  Cache start(int64_t batch) const override;
  Cache start_at(int64_t batch, std::vector<int64_t> places) const override;
  torch::Tensor step(const torch::Tensor& tokens, Cache& cache) override;

 protected:
  // The number of tokens of an image of model.image_size.
  virtual int64_t sequence_length() const = 0;
  // Added to the token at this place of the sequence, broadcast to [batch, 1, width]; undefined = nothing.
  virtual torch::Tensor position_at(int64_t place) const = 0;
  // One block on the token x [batch, 1, width] at this place.
  virtual torch::Tensor step_block(int64_t index, const torch::Tensor& x, int64_t place,
                                   std::vector<torch::Tensor>& state) = 0;

 private:
  Cache empty_cache(int64_t batch, std::vector<int64_t> places) const;
};

}  // namespace tessera::models
