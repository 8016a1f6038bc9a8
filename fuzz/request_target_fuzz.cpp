#include "serve/bodies.h"

#include "core/text.h"
#include "fuzz/fuzz.h"
#include "io/files/file.h"

// A target, and the same bytes as base64.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const std::string_view text = tessera::as_text(bytes);
    if (const auto decoded = tessera::from_base64(text)) {
      // Encoding and decoding again changes nothing, whatever padding and spare bits the text had.
      if (tessera::from_base64(tessera::to_base64(*decoded)) != decoded) std::abort();
    }
    tessera::serve::host_name(text);
    for (const std::string& segment : tessera::serve::parse_target(text).path)
      if (segment.find('\0') != std::string::npos || !tessera::is_utf8(segment)) std::abort();
  });
}
