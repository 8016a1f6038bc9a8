#include "data/detection/label_parsers.h"
#include "fuzz/fuzz.h"
#include "io/files/file.h"

namespace {

// Aborts unless lines grow from parent to child.
void must_be_in_order(const tessera::data::XmlElement& element) {
  for (const tessera::data::XmlElement& child : element.children) {
    if (child.name.empty() || child.line < element.line) std::abort();
    must_be_in_order(child);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    must_be_in_order(tessera::data::parse_xml(std::string(tessera::as_text(bytes)), "f"));
  });
}
