// The text side of two towers: texts become vectors of a space that they share with images.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "models/base/model.h"

namespace tessera::models {

// `ids` are int64 or int32 [batch, tokens].
class TextEncoder : public torch::nn::Module {
 public:
  virtual void initialise(uint64_t seed) = 0;
  // Maps texts to vectors after the projection, [batch, embed_dim].
  virtual torch::Tensor forward(const torch::Tensor& ids, const Context& context = {}) = 0;
  // Returns all tokens before the projection, [batch, tokens, width]. `seen` bool [batch, tokens] marks the keys that are
  // attended to; undefined = those that the encoder reads anyway.
  virtual torch::Tensor encode(const torch::Tensor& ids, const torch::Tensor& seen = {},
                               const Context& context = {}) = 0;
  // Returns the vectors [batch, embed_dim] of texts `ids` that encode() mapped to `tokens`.
  virtual torch::Tensor read(const torch::Tensor& tokens, const torch::Tensor& ids) const = 0;
  // Returns bool [batch, tokens]: the places of a text, without padding.
  virtual torch::Tensor text_places(const torch::Tensor& ids) const = 0;
  // Returns how many positions of ids in main memory forward() needs. It cuts ids on the CPU itself, callers cut others.
  virtual int64_t length_read(const torch::Tensor& ids) const { return ids.size(1); }
  // Returns ids without the positions that forward() does not need for the same ids `host`.
  torch::Tensor read_part(const torch::Tensor& ids, const torch::Tensor& host) const {
    const int64_t length = length_read(host);
    return length < ids.size(1) ? ids.slice(1, 0, length) : ids;
  }
  virtual torch::Tensor project(const torch::Tensor& x) const = 0;  // [..., width] -> [..., embed_dim]
  virtual int64_t vocabulary() const = 0;                           // rows of the token embedding
  virtual int64_t macs() const = 0;                                 // for a text of the context length
};

}  // namespace tessera::models
