// The arguments of timm's constructors as settings of our families.
#pragma once

#include <string>

#include "core/value.h"

namespace tessera::train {

// Returns the settings of `family` for arguments of timm's constructor (`model_args` in a config.json).
// Arguments that only training reads are left out. Throws a usage error that begins with `where` for any other
// argument without an equivalent, with its name and value.
Value settings_of_timm(const std::string& family, const Value& arguments, const std::string& where);

}  // namespace tessera::train
