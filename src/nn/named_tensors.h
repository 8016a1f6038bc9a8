// Tensors by their names in files.
#pragma once

#include "ops/torch.h"

#include <string>
#include <utility>
#include <vector>

namespace tessera {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Returns the module's parameters, then its buffers, by name.
inline NamedTensors named_state(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

}  // namespace tessera
