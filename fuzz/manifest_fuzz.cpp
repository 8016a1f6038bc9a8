#include "runs/manifest.h"

#include "fuzz/fuzz.h"
#include "io/files/file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const auto manifest = tessera::train::parse_manifest(tessera::as_text(bytes), "f");
    // A parsed manifest survives writing, with its checksum, and parsing.
    const std::string written = tessera::train::write_manifest(manifest);
    if (!(tessera::train::parse_manifest(written, "g") == manifest)) std::abort();
  });
}
