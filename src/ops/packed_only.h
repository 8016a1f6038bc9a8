// Linear layers that keep only their packed weights, for models as large as the memory.
#pragma once

#include "ops/torch.h"

namespace tessera::ops {

// While it lives, linear layers of this thread free a weight when they pack it. Its sizes stay, its numbers
// are lost, and packing for another arithmetic needs a new weight. Only without gradients on a CPU. A weight
// with other readers must be kept: set `on` = false in an inner scope.
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

// Frees the memory of a tensor that fills and solely owns its storage; leaves other tensors unchanged.
void give_up(const torch::Tensor& tensor);
// True if the tensor was freed.
bool given_up(const torch::Tensor& tensor);

}  // namespace tessera::ops
