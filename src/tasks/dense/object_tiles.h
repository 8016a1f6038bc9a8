// Detection in large images, tile by tile.
#pragma once

#include <vector>

#include "tasks/dense/object_finder.h"

namespace tessera::tasks {

// Returns the objects of the whole image, best first. Tiles of `tile` x `tile` pixels overlap by a quarter.
// An object cut by a seam is taken from the adjacent tile, which sees it whole, unless it exceeds the
// overlap. Duplicates keep the better score: same class, more than half of the smaller box inside the larger.
// Throws Interrupted.
std::vector<FoundObject> find_in_tiles(ObjectFinder& finder, const Image& image, int tile, double score,
                                       torch::Device device, Precision precision);

}  // namespace tessera::tasks
