// Test-time scales as the commands of dense prediction take them.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// "0.75,1,1.25" as numbers; a usage error that names the part that is none.
std::vector<double> parse_scales(const std::string& list);

}  // namespace tessera::cli
