// The rule of every fuzz target: on any bytes, the parser returns a result or throws an Error of one line.
// Anything else (another exception, a read out of bounds, too much memory) ends the process and is a finding.
#pragma once

#include <cstdlib>
#include <cstring>
#include <span>

#include "core/error.h"

namespace tessera {

template <class Body>
int fuzz_one(const uint8_t* data, size_t size, const Body& body) {
  try {
    body(std::span(reinterpret_cast<const std::byte*>(data), size));
  } catch (const Error& error) {
    if (std::strchr(error.what(), '\n')) std::abort();
  }
  return 0;
}

// Aborts unless `part` is within `whole`; reads its ends, so that the sanitizers check them.
inline void must_lie_in(std::span<const std::byte> part, std::span<const std::byte> whole) {
  if (part.empty()) return;
  if (part.data() < whole.data() || part.data() + part.size() > whole.data() + whole.size()) std::abort();
  const volatile std::byte first = part.front(), last = part.back();
  static_cast<void>(first);
  static_cast<void>(last);
}

}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
