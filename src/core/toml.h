// TOML text to and from settings trees.
#pragma once

#include <string>
#include <string_view>

#include "core/value.h"

namespace tessera {

// Parses a document. `where` (a file name) and the line stand in the error. Refuses nesting deeper than 16
// and text over 1 MiB.
Value parse_toml(std::string_view document, const std::string& where);

// Parses one value as on the right of `key =`; what is no TOML value is taken as a plain string.
Value parse_toml_value(std::string_view value);

// One value on one line.
std::string toml_text(const Value& value);

// A whole document: plain keys first, then [tables].
std::string write_toml(const Value& table);

}  // namespace tessera
