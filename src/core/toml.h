// Conversion between TOML and settings trees.
#pragma once

#include <string>
#include <string_view>

#include "core/value.h"

namespace tessera {

// Parses a document. Errors contain `where` (a file name) and the line. Refuses nesting deeper than 16 levels
// and text over 1 MiB.
Value parse_toml(std::string_view document, const std::string& where);

// Parses one value, as on the right of `key =`; anything that is not a TOML value becomes a plain string.
Value parse_toml_value(std::string_view value);

// Returns one value on one line.
std::string toml_text(const Value& value);

// Returns a whole document: plain keys first, then [tables].
std::string write_toml(const Value& table);

}  // namespace tessera
