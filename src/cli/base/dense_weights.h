// Weights for the commands of dense prediction.
#pragma once

#include <string>

#include "open/open_task.h"

namespace tessera::cli {

// Opens them with their notes on standard error. Files of other programs do not say which heads they hold and are refused with
// the way to make them ours, by a recipe such as `example`.
train::OpenedTask open_dense_weights(const std::string& path, bool raw, const std::string& example);

}  // namespace tessera::cli
