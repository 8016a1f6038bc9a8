// Maps with their channels second, as backbones return them, or last, as linear layers read them.
#pragma once

#include "ops/torch.h"

namespace tessera::models {

// Permute [batch, channels, height, width] to [batch, height, width, channels], and back.
inline torch::Tensor channels_last(const torch::Tensor& map) { return map.permute({0, 2, 3, 1}); }
inline torch::Tensor channels_first(const torch::Tensor& map) { return map.permute({0, 3, 1, 2}); }

}  // namespace tessera::models
