#include "fuzz/fuzz.h"
#include "io/files/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const auto index = tessera::index_tar(bytes, "f");
    for (const auto& member : index.members) {
      if (member.name.empty() || member.offset > bytes.size()) std::abort();
      tessera::must_lie_in(bytes.subspan(member.offset, member.size), bytes);
    }
  });
}
