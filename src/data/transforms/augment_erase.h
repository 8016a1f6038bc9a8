// Random erasing (Zhong et al., 2017) on a normalised image, as in timm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/draws.h"
#include "io/images/image.h"

namespace tessera::data {

struct EraseConfig {
  double probability = 0;
  std::string mode = "pixel";  // const (zeros), rand (a normal colour for the box), pixel (normal noise)
  int64_t least_count = 1, most_count = 1;
  double least_area = 0.02, most_area = 1.0 / 3;  // fractions of the image's area, for all boxes together
  double least_aspect = 0.3;                      // height over width; at most its inverse
  template <class V>
  void visit(V& v) {
    v("probability", probability, "share of images that are erased in part");
    v("mode", mode, "const (zeros), rand (a normal colour for the box) or pixel (normal noise)");
    v("least_count", least_count, "boxes, at least");
    v("most_count", most_count, "boxes, at most");
    v("least_area", least_area, "share of the image, at least");
    v("most_area", most_area, "share of the image, at most");
    v("least_aspect", least_aspect, "height over width, at least; at most its inverse");
  }
};

// Throws a usage error that names the invalid key.
void check_erase(const EraseConfig& config);

// Draws the boxes to erase: none with probability 1 - p. A box that does not fit in ten tries is dropped.
std::vector<Box> erase_boxes(const EraseConfig& config, int height, int width, Draws& draws);

// Draws boxes and fills them; `picture` is [channels, height, width].
void erase(const EraseConfig& config, int channels, int height, int width, Draws& draws, float* picture);

}  // namespace tessera::data
