// Images of the built-in set with several shapes each, for detectors: "shapes:task=detect".
//
// Two to six shapes of ten kinds, later ones possibly in front of earlier ones, on a smooth background with
// noise. A shape with less than a quarter visible is dropped. A sample depends only on (seed, split, index).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/objects.h"
#include "io/images/image.h"

namespace tessera::data {

struct ShapesObjectsConfig {
  int64_t train = 20000, val = 500;
  int64_t size = 128;
  int64_t seed = 0;
  std::string task = "detect";
  template <class V>
  void visit(V& v) {
    v("train", train, "training images");
    v("val", val, "validation images");
    v("size", size, "side in pixels, 64 to 1024");
    v("seed", seed, "another seed is another set");
    v("task", task, "detect");
  }
};
ShapesObjectsConfig parse_shapes_objects(const std::string& path);

struct ShapesObjects {
  Image image;                            // [size, size, 3]
  std::vector<ObjectAnnotation> objects;  // outlines as run lengths
};
ShapesObjects draw_shapes_objects(const ShapesObjectsConfig& config, Split split, int64_t index);

}  // namespace tessera::data
