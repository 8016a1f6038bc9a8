// Detects whether a tensor is unchanged since weights were packed, or norms folded, from it.
#pragma once

#include <vector>

#include "ops/torch.h"

namespace tessera::ops {

// Tensors created in inference mode have no version. A storage's address is unique only while it cannot be
// reused: see HeldStorages.
struct Identity {
  c10::StorageImpl* storage = nullptr;
  const void* data = nullptr;
  int64_t version = 0;
  bool operator==(const Identity&) const = default;
};
// Empty for an undefined tensor. `tensor` must not be opaque.
inline Identity identity_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.storage().unsafeGetStorageImpl(), tensor.const_data_ptr(),
          tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version())};
}

// Prevents reuse of the addresses of these tensors' storages; their data may be freed.
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
