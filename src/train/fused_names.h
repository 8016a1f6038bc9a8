// Projections that other programs keep apart and the models here have in one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ops/torch.h"

namespace tessera::train {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// "X.query.Y", "X.key.Y" and "X.value.Y" (transformers) as one "X.qkv.Y", rows one behind the other, at the place of
// the query; where one of the three is missing they stay as they are.
NamedTensors fuse_projections(const NamedTensors& tensors);

}  // namespace tessera::train
