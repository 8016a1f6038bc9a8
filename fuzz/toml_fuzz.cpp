#include "core/toml.h"
#include "fuzz/fuzz.h"
#include "io/files/file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const auto value = tessera::parse_toml(tessera::as_text(bytes), "f");
    // What was read can be written, and means the same then. (Two NaN are never equal: their texts are.)
    const std::string written = tessera::write_toml(value);
    if (tessera::write_toml(tessera::parse_toml(written, "g")) != written) std::abort();
  });
}
