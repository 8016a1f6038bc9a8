// The cache of a decoder, and the place of its next token (language_model.h).
#pragma once

#include "ops/torch.h"

#include <array>
#include <cstdint>
#include <vector>

namespace tessera::models {

// Keys and values of all tokens so far, with spare room, so that appending a token copies nothing.
struct KeyValueCache {
  std::vector<torch::Tensor> keys, values;  // per block, [batch, kv_heads, room, head_dim], rotated
  int64_t length = 0;                       // tokens that all blocks have
  // Returns the keys and values of a block, [batch, kv_heads, length + tokens, head_dim], with room for new
  // ones of the shape and dtype of `like`. The caller writes the last `tokens` positions.
  std::array<torch::Tensor, 2> extended(int64_t block, const torch::Tensor& like);
  // Returns those of a block with all their room.
  std::array<torch::Tensor, 2> whole(int64_t block) const;
  // Gives all blocks room for `tokens` more. Returns true if that needed other memory.
  bool make_room(int64_t tokens);
  // The tokens for which all blocks have memory.
  int64_t room() const;
  // Reorders or repeats the rows of the batch.
  void select(const torch::Tensor& rows);
};

// The memory that a step of one token reads, the same for each token. So all steps are the same calls, and a graph of a GPU can repeat
// them.
struct StepPlace {
  torch::Tensor before = {};         // int64 [1]: tokens in the cache; the caller counts
  torch::Tensor seen = {};           // bool [batch, room]: false for padding; undefined = all true
  torch::Tensor padding = {};        // int64 [batch, 1]: how many are false
  torch::Tensor cos = {}, sin = {};  // [room, head_dim / 2] of all positions; undefined: no rotation
  torch::Tensor slopes = {};         // [heads]: ALiBi; undefined: none
  // Reorders or repeats the rows of the batch.
  void select(const torch::Tensor& rows);
};

}  // namespace tessera::models
