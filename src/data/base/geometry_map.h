// Maps pixels of a transformed image to the original, so that masks and boxes move with it.
//
// Crops, resizes and flips act on rows and columns separately. Each axis has a scale, an offset and possibly
// a mirror.
#pragma once

#include <cstdint>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// The range [source_from, source_to] of a source axis is resized to `resized` pixels. Output pixel i shows
// resized pixel start + i; if mirrored, i counts from the output's far end.
struct AxisMap {
  double source_from = 0, source_to = 0;
  int resized = 0;      // length of the range after resizing, in pixels
  int start = 0;        // negative if the output begins outside
  int size = 0;         // length of the output
  int source_size = 0;  // length of the source
  bool mirrored = false;
  bool reflected = false;  // mirrored content outside the image, else empty

  // Returns the source pixel under the centre of output pixel `out`, as in Pillow's nearest resize; -1
  // outside the source.
  int source_pixel(int out) const;
  // Maps a source coordinate to the output, possibly outside it. Pixel i covers [i, i + 1).
  double forward(double source) const;
};

struct GeometryMap {
  AxisMap x, y;
};

// Writes the mask of the transformed image, [y.size, x.size], with `fill` outside the source. Throws unless
// the mask has one channel and the source's size.
void map_mask(const Image& mask, const GeometryMap& map, uint8_t fill, uint8_t* out);

// Returns the boxes in the transformed image, clipped to its border. Drops a box if it is empty or keeps less
// than `least_visible` of its area.
std::vector<Instance> map_instances(const std::vector<Instance>& instances, const GeometryMap& map,
                                    double least_visible);

}  // namespace tessera::data
