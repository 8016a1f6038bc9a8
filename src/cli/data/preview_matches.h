// `tessera data preview --matches RECIPE`: images as a detector is trained on them, with the anchors that belong to each object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "report/grid.h"

namespace tessera::cli {

// Returns `count` images of the training set with the recipe's augmentation, at least `side` pixels wide:
// every object as a thick box, its assigned anchors as thin ones of its colour. Throws a usage error if the
// recipe's task has no anchors.
std::vector<report::Cell> matched_cells(const std::string& recipe_file, const data::SourceConfig& source,
                                        int64_t count, int64_t seed, int side);

}  // namespace tessera::cli
