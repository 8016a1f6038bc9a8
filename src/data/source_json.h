// JSON that strangers wrote: size, depth and number of values are checked while parsing. Internal to this
// folder.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera::data {

struct JsonLimits {
  uint64_t max_bytes = uint64_t{1} << 20;
  int max_depth = 16;
};

// Throws Error with `name` in front: too long, too deep, not JSON (with the byte at which it stops being so),
// a key that stands twice.
nlohmann::json parse_json(std::string_view text, const std::string& name, const JsonLimits& limits = {});

}  // namespace tessera::data
