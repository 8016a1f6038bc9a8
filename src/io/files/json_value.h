// Settings trees as JSON text, for manifests and the metadata of weight files.
#pragma once

#include <string>
#include <string_view>

#include "core/value.h"

namespace tessera::train {

// `where` starts error messages. Refuses what io's parse_json refuses, and null.
Value parse_json_value(std::string_view json, const std::string& where);

// Writes doubles so that they read back bit for bit. `indent` < 0: one line.
std::string json_text(const Value& value, int indent = -1);

}  // namespace tessera::train
