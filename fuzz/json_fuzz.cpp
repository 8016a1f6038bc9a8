#include "fuzz/fuzz.h"
#include "io/files/file.h"
#include "io/files/json.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const auto tree = tessera::parse_json(tessera::as_text(bytes), "f");
    // A parsed tree survives writing and parsing.
    if (tessera::parse_json(tree.dump(), "g") != tree) std::abort();
  });
}
