// Where the pixels of a transformed picture come from, so that masks and boxes move with it.
//
// Crops, resizes and flips act on rows and columns apart: each axis is a scale, an offset and perhaps a
// mirror.
#pragma once

#include <cstdint>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// The stretch from `source_from` to `source_to` of a source axis is resized to `resized` pixels; pixel i of
// the output shows resized pixel start + i, of a mirrored axis counted from the output's far end.
struct AxisMap {
  double source_from = 0, source_to = 0;
  int resized = 0;      // pixels that the stretch becomes
  int start = 0;        // may be negative: the output begins outside
  int size = 0;         // of the output
  int source_size = 0;  // of the source
  bool mirrored = false;
  bool reflected = false;  // what lies outside is mirrored back into it, else there is nothing

  // The source pixel under the centre of output pixel `out`, as Pillow's nearest resize takes it; -1 where
  // there is none.
  int source_pixel(int out) const;
  // Where a source coordinate lands in the output, which may be outside of it. Pixel i covers [i, i + 1).
  double forward(double source) const;
};

struct GeometryMap {
  AxisMap x, y;
};

// The mask of the transformed picture, [y.size, x.size]; `fill` where the picture shows nothing of the
// source. Fails unless the mask has one channel and the source's size.
void map_mask(const Image& mask, const GeometryMap& map, uint8_t fill, uint8_t* out);

// The boxes as the transformed picture shows them, cut at its border. A box of which less than
// `least_visible` of its area is left is dropped, as is an empty one.
std::vector<Instance> map_instances(const std::vector<Instance>& instances, const GeometryMap& map,
                                    double least_visible);

}  // namespace tessera::data
