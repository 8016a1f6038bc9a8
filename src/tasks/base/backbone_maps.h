// The feature maps that heads of dense prediction read, derived from a model's settings.
#pragma once

#include <cstdint>
#include <vector>

#include "models/base/model.h"

namespace tessera::tasks {

struct BackboneMaps {
  std::vector<int64_t> blocks;   // blocks that give the maps, counted from 0
  std::vector<int64_t> widths;   // channels of each map
  std::vector<int64_t> strides;  // pixels per cell side of each map
  bool stages = false;           // true: maps of a pyramid; false: all on one grid
  int64_t unit = 1;              // image sides must be multiples of it
};

// Returns the maps of the given blocks (task.blocks). If none are given: all stages, or every fourth of the
// `count` blocks. Throws a usage error for a missing block.
BackboneMaps maps_of(const models::ModelSpec& spec, const std::vector<int64_t>& asked, int64_t count);

}  // namespace tessera::tasks
