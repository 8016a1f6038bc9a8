// Tensors by their names in files.
#pragma once

#include "ops/torch.h"

#include <string>
#include <utility>
#include <vector>

namespace tessera {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Returns the module's parameters, then its buffers, by name.
NamedTensors named_state(const torch::nn::Module& module);

}  // namespace tessera
