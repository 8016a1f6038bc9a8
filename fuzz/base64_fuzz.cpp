#include "fuzz/fuzz.h"

#include "core/text.h"
#include "io/files/file.h"

// What can be decoded is encoded to the same text.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const std::string_view text = tessera::as_text(bytes);
    const auto decoded = tessera::from_base64(text);
    if (decoded && tessera::from_base64(tessera::to_base64(*decoded)) != decoded) std::abort();
  });
}
