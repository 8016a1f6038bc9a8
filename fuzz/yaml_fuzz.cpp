#include "fuzz/fuzz.h"
#include "io/files/file.h"
#include "io/files/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const tessera::YamlFile file(std::string(tessera::as_text(bytes)), "f");
    if (file.scalar("nc").line < 0) std::abort();
    for (const char* key : {"train", "names"}) {
      if (!file.has(key)) continue;
      for (const tessera::YamlItem& item : file.items(key))
        if (item.value.empty() || item.line < file.line(key)) std::abort();
    }
  });
}
