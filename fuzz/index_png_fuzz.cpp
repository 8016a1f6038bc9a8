#include "fuzz/fuzz.h"
#include "io/images/index_png.h"

// A decoded mask has as many numbers as its header states.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const tessera::ImageInfo info = tessera::image_info(bytes, "f");
    const tessera::IndexImage mask = tessera::decode_index_png(bytes, "f", 1 << 16);
    if (mask.width != info.width || mask.height != info.height) std::abort();
    if (mask.values.size() != static_cast<size_t>(mask.width) * static_cast<size_t>(mask.height))
      std::abort();
  });
}
