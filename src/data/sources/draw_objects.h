// Draws objects over their image.
#pragma once

#include <cstdint>
#include <vector>

#include "io/images/image.h"
#include "io/images/run_lengths.h"

namespace tessera::data {

// Draws boxes, masks and classes over an image. Class colours are distinct for all kinds of colour vision.
struct DrawnObject {
  double left = 0, top = 0, right = 0, bottom = 0;
  int64_t label = 0;
  const RunLengths* mask = nullptr;  // has the image's size
};
Image draw_objects(const Image& image, const std::vector<DrawnObject>& objects);

}  // namespace tessera::data
