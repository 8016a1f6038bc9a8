// Names of tensors in files whose model was a part of something larger when it was saved: Lightning's
// ("model.blocks.0…"), MMPretrain's ("backbone.layers.0…" beside "head…"), DataParallel's ("module.…").
#pragma once

#include <string>
#include <vector>

namespace tessera::train {

struct UnwrappedNames {
  std::vector<std::string> names;  // without the prefix, in the same order; "" for what is not the model's
  std::string prefix;              // "" where the model stands by itself
  std::vector<std::string>
      beside;  // names, as they stood, of tensors outside of the model (a loss, a teacher)
};

// The prefix is what stands in front of the patch embedding, or of a ResNet's first block, as long as it is made of "model", "module",
// "backbone", "encoder", "net", "network" and "_orig_mod". Tensors that do not begin with it and are no head
// are not the model's.
UnwrappedNames unwrap_names(const std::vector<std::string>& names);

}  // namespace tessera::train
