// What a model's settings say of the maps that heads of dense prediction read.
#pragma once

#include <cstdint>
#include <vector>

#include "models/base/model.h"

namespace tessera::tasks {

struct BackboneMaps {
  std::vector<int64_t> blocks;   // whose maps are read, counted from 0
  std::vector<int64_t> widths;   // channels of each map
  std::vector<int64_t> strides;  // pixels along a side of a cell of each map
  bool stages = false;           // of a pyramid, else of one grid throughout
  int64_t unit = 1;              // what the sides of an image must be multiples of
};

// The maps of the blocks that were asked for (task.blocks); of none: all stages, or each fourth of the `count` blocks.
// A usage error for a block that there is not.
BackboneMaps maps_of(const models::ModelSpec& spec, const std::vector<int64_t>& asked, int64_t count);

}  // namespace tessera::tasks
