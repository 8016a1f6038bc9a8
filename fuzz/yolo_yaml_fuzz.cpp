#include <set>

#include "data/detection/label_parsers.h"
#include "fuzz/fuzz.h"
#include "io/files/file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const auto keys = tessera::data::parse_yolo_yaml(std::string(tessera::as_text(bytes)), "f");
    const std::set<std::string> names(keys.names.begin(), keys.names.end());
    if (names.empty() || names.size() != keys.names.size() || names.contains("")) std::abort();
  });
}
