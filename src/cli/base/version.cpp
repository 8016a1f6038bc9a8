#include <torch/version.h>

#include <iostream>

#include "cli/base/command.h"
#include "cli/base/version.h"

namespace tessera::cli {

void add_version(Arguments&, Action& action) {
  action = [] { std::cout << "tessera " << program_version() << " (LibTorch " << TORCH_VERSION << ")\n"; };
}

std::string program_version() { return TESSERA_VERSION; }

}  // namespace tessera::cli
