#include "fuzz/fuzz.h"
#include "io/files/gzip.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    constexpr uint64_t most = uint64_t{16} << 20;
    if (tessera::inflate_gzip(bytes, "f", {most, 1100}).size() > most) std::abort();
  });
}
