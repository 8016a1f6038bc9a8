// Converts values to bytes and back, for gathering across processes.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tasks {

template <class Element>
std::string bytes_of(const std::vector<Element>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Element)};
}

// Appends the elements encoded in `bytes` to `values`.
template <class Element>
void append_bytes(std::vector<Element>& values, std::string_view bytes) {
  const size_t before = values.size();
  values.resize(before + bytes.size() / sizeof(Element));
  if (!bytes.empty()) std::memcpy(values.data() + before, bytes.data(), bytes.size());
}

}  // namespace tessera::tasks
