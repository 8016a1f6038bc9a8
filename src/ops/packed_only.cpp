#include "ops/packed_only.h"

#include <ATen/native/Resize.h>

namespace tessera::ops {
namespace {

thread_local bool on_this_thread = false;

}  // namespace

PackedOnly::PackedOnly(bool on) : before_(on_this_thread) { on_this_thread = on; }
PackedOnly::~PackedOnly() { on_this_thread = before_; }
bool packed_only() { return on_this_thread; }

void give_up(const torch::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu()) return;
  const c10::Storage& storage = tensor.storage();
  const bool whole = storage.nbytes() == tensor.nbytes() && storage.use_count() == 1 && storage.resizable();
  if (whole) at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), 0);
}

bool given_up(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && tensor.storage().nbytes() == 0;
}

}  // namespace tessera::ops
