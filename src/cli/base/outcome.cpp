#include "cli/base/outcome.h"

#include <iostream>

#include "cli/base/common.h"

namespace tessera::cli {

std::ostream& people(bool json) { return json ? std::cerr : std::cout; }

void print_outcome(bool json, const nlohmann::ordered_json& outcome) {
  if (json) std::cout << json_text(outcome) << "\n";
}

}  // namespace tessera::cli
