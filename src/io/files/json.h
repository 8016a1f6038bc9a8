// JSON that strangers wrote: size, depth and number of keys are bounded while it is parsed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera {

struct JsonLimits {
  uint64_t max_bytes = uint64_t{16} << 20;
  int max_depth = 16;
  size_t max_keys = 4096;  // of one object
};

// Throws Error with `where` in front: too long, nested too deep, a key that stands twice, too many of them,
// not JSON (with the byte, counted from 1, at which it stops being so; a NUL is such a byte, not the end).
// Tree is nlohmann::json, or nlohmann::ordered_json where the order of keys matters.
template <class Tree = nlohmann::json>
Tree parse_json(std::string_view document, const std::string& where, const JsonLimits& limits = {});

extern template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
extern template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

}  // namespace tessera
