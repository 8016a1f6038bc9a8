// The cost of attention with a mask that skips products.
#pragma once

#include <cstdint>

namespace tessera::models {

class MaskedAttention {
 public:
  static constexpr const char* kAbility = "masks attention to later tokens";
  virtual ~MaskedAttention() = default;
  // Returns the multiply-adds in Backbone::macs that the mask makes redundant; 0 if these settings have no
  // mask.
  virtual int64_t masked_out_macs(int64_t height, int64_t width) const = 0;
};

// Returns the redundant multiply-adds of one causal attention. For N tokens of width D, Wang et al. 2024,
// Table 2, count 4 N D^2 + N^2 D + (floor(N^2 / 2) + 1) D instead of 4 N D^2 + 2 N^2 D: all scores, and the
// values that a token sees.
inline int64_t causal_attention_saves(int64_t tokens, int64_t width) {
  return (tokens * tokens - (tokens * tokens / 2 + 1)) * width;
}

}  // namespace tessera::models
