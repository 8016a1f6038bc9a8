#include "core/value.h"
#include "fuzz/fuzz.h"
#include "io/files/file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const auto value = tessera::parse_toml(tessera::as_text(bytes), "f");
    // A parsed document survives writing and parsing. (NaNs are never equal, so this compares text.)
    const std::string written = tessera::write_toml(value);
    if (tessera::write_toml(tessera::parse_toml(written, "g")) != written) std::abort();
  });
}
