#include "fuzz/fuzz.h"
#include "io/weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const auto content = tessera::parse_safetensors(bytes, "f");
    size_t total = 0;
    for (const auto& tensor : content.tensors) {
      tessera::must_lie_in(tensor.bytes, bytes);
      total += tensor.bytes.size();
    }
    if (total > bytes.size()) std::abort();  // no byte belongs to two tensors
  });
}
