// Generation with causal models: one token at a time, with a cache of earlier tokens.
#pragma once

#include <string>
#include <vector>

#include "models/base/isotropic.h"

namespace tessera::models {

// A model's memory of the tokens so far: keys and values, or the state of its recurrent layers.
struct Cache {
  int64_t batch = 0, tokens = 0;
  // Position of each token in an image's sequence, in the order in which tokens arrive; empty: 0, 1, 2, …
  std::vector<int64_t> places = {};
  std::vector<std::vector<torch::Tensor>> blocks;  // one per block, each empty before the first token
};

class CausalStep {
 public:
  static constexpr const char* kAbility = "encodes token after token";
  virtual ~CausalStep() = default;

  // Returns why this model cannot step with its settings ("model.causal = false sees later patches"); empty
  // if it can.
  virtual std::string step_refusal() const { return ""; }
  // Returns the cache before the first token of `batch` sequences on the grid of model.image_size. Throws a
  // usage error if step_refusal() is not empty.
  virtual Cache start(int64_t batch) const = 0;
  // Encodes the next token of each sequence, [batch, 1, width] -> [batch, 1, width], as encode() does. The
  // input has no position yet: the number of tokens before determines it. Evaluation mode only.
  virtual torch::Tensor step(const torch::Tensor& tokens, Cache& cache) = 0;

  // For next-patch prediction. Returns why a token sees later tokens even in pre-training; "" if none does. A
  // model may be causal in pre-training, whatever its setting for classification.
  virtual std::string next_refusal() const { return step_refusal(); }
  // Like start(), for tokens at positions `places`. Throws a usage error if next_refusal() is not empty.
  virtual Cache start_at(int64_t batch, std::vector<int64_t> places) const = 0;
  // Embeds the patches of images as step() takes them, [batch, patches, width]. Image sides are whole
  // patches.
  virtual torch::Tensor embed_patches(const torch::Tensor& images) const = 0;
  // Returns the tokens before all patches as step() takes them, [1, number, width]; undefined without any.
  virtual torch::Tensor front_tokens() const { return {}; }
};

// An isotropic backbone with this capability: a family provides its positions and one block's step.
class CausalBackbone : public IsotropicBackbone, public CausalStep {
 public:
  Cache start(int64_t batch) const override;
  Cache start_at(int64_t batch, std::vector<int64_t> places) const override;
  torch::Tensor step(const torch::Tensor& tokens, Cache& cache) override;

 protected:
  // Returns the number of tokens of an image of model.image_size.
  virtual int64_t sequence_length() const = 0;
  // Returns the position of this place, broadcast to [batch, 1, width] and added to the token; undefined =
  // none.
  virtual torch::Tensor position_at(int64_t place) const = 0;
  // Runs one block on the token x [batch, 1, width] at this position.
  virtual torch::Tensor step_block(int64_t index, const torch::Tensor& x, int64_t place,
                                   std::vector<torch::Tensor>& state) = 0;

 private:
  Cache empty_cache(int64_t batch, std::vector<int64_t> places) const;
};

}  // namespace tessera::models
