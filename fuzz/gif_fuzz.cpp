#include <vector>

#include "fuzz/image_fuzz.h"

// The first bytes always select the format, so that all time goes to its reader.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kFirst = "GIF89a";
  std::vector<uint8_t> bytes(data, data + size);
  if (size < kFirst.size()) return fuzz_image(data, size);
  std::copy(kFirst.begin(), kFirst.end(), bytes.begin());
  return fuzz_image(bytes.data(), size);
}
