// The memory that a forward pass keeps for its gradients, block by block, measured while it runs.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>
#include <vector>

#include "models/heads/class_head.h"

namespace tessera::analysis {

struct KeptBytes {
  std::string place;  // "blocks.3": from the place in front up to this one; "head" behind the last
  int64_t bytes = 0;
};
struct ActivationBytes {
  std::vector<KeptBytes> places;  // kept for the gradients of one image more
  int64_t training = 0;           // their sum: what the backward pass starts from
  int64_t inference = 0;          // highest at a time of one image more, without gradients
};
// Of images of `side` pixels in float32 on the CPU, as the difference between two images and one. Neither weights nor
// their gradients count.
ActivationBytes activation_bytes(models::Classifier& model, int64_t channels, int64_t side);

// The outputs of blocks among the taps: "blocks.3", or "blocks.1.3" of a pyramid.
bool is_block_place(const std::string& tap);

}  // namespace tessera::analysis
