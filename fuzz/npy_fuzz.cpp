#include "fuzz/fuzz.h"
#include "io/files/zip.h"

// The header of an array, and the length that it declares.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const tessera::NpyHeader header = tessera::parse_npy_header(bytes, "f");
    uint64_t numbers = header.element;
    for (const int64_t extent : header.shape) numbers *= static_cast<uint64_t>(extent);
    if (header.bytes + numbers != bytes.size()) std::abort();
  });
}
