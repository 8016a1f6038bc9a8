// Finding objects in large images, tile after tile.
#pragma once

#include <vector>

#include "tasks/dense/object_finder.h"

namespace tessera::tasks {

// Objects of the whole image, best first. Tiles of `tile` x `tile` pixels overlap by a quarter; an object that a seam
// cuts is taken from the tile beside, which sees it whole, unless it is too large for any overlap. One that two tiles
// see is kept once, with the better score: of one class, the smaller lying mostly in the larger. Throws Interrupted.
std::vector<FoundObject> find_in_tiles(ObjectFinder& finder, const Image& image, int tile, double score,
                                       torch::Device device, Precision precision);

}  // namespace tessera::tasks
