#include "serve/bodies.h"

#include "fuzz/fuzz.h"
#include "io/files/file.h"

// The first line is the Content-Type, the rest the body.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const std::string_view whole = tessera::as_text(bytes);
    const size_t line = std::min(whole.find('\n'), whole.size());
    const std::string boundary = tessera::serve::boundary_of(whole.substr(0, line));
    const std::string_view body = whole.substr(std::min(whole.size(), line + 1));
    for (const auto& part : tessera::serve::parse_multipart(body, boundary))
      tessera::must_lie_in(std::as_bytes(std::span(part.content.data(), part.content.size())), bytes);
  });
}
