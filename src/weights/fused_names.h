// Projections that other programs keep apart and the models here have in one.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "nn/named_tensors.h"

namespace tessera::train {

// "X.query.Y", "X.key.Y" and "X.value.Y" (transformers) as one "X.qkv.Y", rows one behind the other, at the place of
// the query; where one of the three is missing they stay as they are.
NamedTensors fuse_projections(const NamedTensors& tensors);

// The way back: a tensor with `whole` in its name as three of a third of its rows each, with the three `parts` in its place.
NamedTensors split_projections(const NamedTensors& tensors, std::string_view whole,
                               const std::array<std::string_view, 3>& parts);

}  // namespace tessera::train
