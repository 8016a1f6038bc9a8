#include "ops/identity.h"

namespace tessera::ops {

Identity identity_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.storage().unsafeGetStorageImpl(), tensor.const_data_ptr(),
          tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version())};
}

}  // namespace tessera::ops
