// Linear layers that keep their packed weights alone, where a model is as large as the memory.
#pragma once

#include "ops/torch.h"

namespace tessera::ops {

// While it lives, a linear layer of this thread that packs a weight gives up the memory of the weight itself: its sizes
// stay, its numbers are gone, and only another weight in its place can be packed for another arithmetic. Without gradients
// on a CPU alone. A weight whose memory anything else reads must be kept: `on` = false inside of another scope.
class PackedOnly {
 public:
  explicit PackedOnly(bool on = true);
  ~PackedOnly();
  PackedOnly(const PackedOnly&) = delete;
  PackedOnly& operator=(const PackedOnly&) = delete;

 private:
  bool before_;
};
bool packed_only();

// Frees the memory of a tensor that fills its storage and shares it with no other; leaves others as they are.
void give_up(const torch::Tensor& tensor);
// Whether it was given up.
bool given_up(const torch::Tensor& tensor);

}  // namespace tessera::ops
