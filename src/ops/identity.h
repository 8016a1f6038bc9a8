// Whether a tensor is still the one that something was made from: packed weights, folded norms.
#pragma once

#include <vector>

#include "ops/torch.h"

namespace tessera::ops {

// Tensors made in inference mode have no version. The address of a storage tells it apart only while it is
// kept from being given to another: see HeldStorages.
struct Identity {
  c10::StorageImpl* storage = nullptr;
  const void* data = nullptr;
  int64_t version = 0;
  bool operator==(const Identity&) const = default;
};
// Of an undefined tensor: nothing. `tensor` is no opaque one.
Identity identity_of(const torch::Tensor& tensor);

// Keeps the addresses of these tensors' storages from being given to others; their numbers may go.
class HeldStorages {
 public:
  void clear() { held_.clear(); }
  void add(const torch::Tensor& tensor) {
    if (tensor.defined()) held_.emplace_back(tensor.storage().getWeakStorageImpl());
  }

 private:
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> held_;
};

}  // namespace tessera::ops
