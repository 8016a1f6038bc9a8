// Weights for the commands of dense prediction.
#pragma once

#include <string>

#include "open/open_task.h"

namespace tessera::cli {

// Opens weights and prints their notes to standard error. Refuses files of other programs, which do not name
// their heads, with the command that converts them by a recipe such as `example`.
train::OpenedTask open_dense_weights(const std::string& path, bool raw, const std::string& example);

}  // namespace tessera::cli
