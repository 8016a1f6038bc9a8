// Settings trees as JSON text: what manifests and the metadata of weight files hold.
#pragma once

#include <string>
#include <string_view>

#include "core/value.h"

namespace tessera::train {

// `where` stands in front of errors. Refuses what io's parse_json refuses, and null.
Value parse_json_value(std::string_view json, const std::string& where);

// Doubles are written so that they read back as the same bits. `indent` < 0: one line.
std::string json_text(const Value& value, int indent = -1);

}  // namespace tessera::train
