// JSON from untrusted sources: limits size, depth and number of keys during parsing.
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
  size_t max_keys = 4096;  // per object
};

// Throws Error that starts with `where`: too long, nested too deep, a repeated key, too many keys, or not
// JSON (with the first wrong byte, counted from 1; a NUL is an error, not the end). Tree is nlohmann::json,
// or nlohmann::ordered_json if the order of keys matters.
template <class Tree = nlohmann::json>
Tree parse_json(std::string_view document, const std::string& where, const JsonLimits& limits = {});

extern template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
extern template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

}  // namespace tessera
