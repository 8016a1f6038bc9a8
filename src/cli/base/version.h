// The program's version, from the build.
#pragma once

#include <string>

namespace tessera::cli {

std::string program_version();

}  // namespace tessera::cli
