// `tessera data preview --matches RECIPE`: images as a detector is trained on them, with the anchors that belong to each object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "report/grid.h"

namespace tessera::cli {

// `count` images of the training set as the recipe augments them, at least `side` pixels wide: every object a thick box, the
// anchors that are trained as it thin ones of its colour. A usage error where the recipe's task has no anchors.
std::vector<report::Cell> matched_cells(const std::string& recipe_file, const data::SourceConfig& source,
                                        int64_t count, int64_t seed, int side);

}  // namespace tessera::cli
