// Tensor names in files that were saved from a larger module: Lightning ("model.blocks.0…"), MMPretrain
// ("backbone.layers.0…" next to "head…"), DataParallel ("module.…").
#pragma once

#include <string>
#include <vector>

namespace tessera::train {

struct UnwrappedNames {
  std::vector<std::string> names;   // without the prefix, in the same order; "" for tensors outside the model
  std::string prefix;               // "" if the model is not wrapped
  std::vector<std::string> beside;  // original names of tensors outside the model (a loss, a teacher)
};

// Removes the prefix before the patch embedding or a ResNet's first block. It consists of "model", "module",
// "backbone", "encoder", "net", "network" and "_orig_mod". Tensors without the prefix are outside the model,
// except heads.
UnwrappedNames unwrap_names(const std::vector<std::string>& names);

}  // namespace tessera::train
