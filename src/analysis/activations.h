// Measures the memory that a forward pass keeps for its gradients, block by block.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>
#include <vector>

#include "models/heads/class_head.h"

namespace tessera::analysis {

struct KeptBytes {
  std::string place;  // "blocks.3": memory from the previous tap to this one; "head" after the last
  int64_t bytes = 0;
};
struct ActivationBytes {
  std::vector<KeptBytes> places;  // bytes kept for the gradients, per additional image
  int64_t training = 0;           // their sum: memory at the start of the backward pass
  int64_t inference = 0;          // peak per additional image, without gradients
};
// Measures images of `side` pixels in float32 on the CPU, as the difference between two images and one.
// Excludes the weights and their gradients.
ActivationBytes activation_bytes(models::Classifier& model, int64_t channels, int64_t side);

// True for a tap at a block's output: "blocks.3", or "blocks.1.3" of a pyramid.
bool is_block_place(const std::string& tap);

}  // namespace tessera::analysis
