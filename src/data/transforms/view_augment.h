// Views of an image for objectives that compare them (Chen et al. 2020, SimCLR; Grill et al. 2020, BYOL; MoCo v3; DINO).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/config.h"
#include "data/transforms/transform.h"

namespace tessera::data {

// A random crop of an image, mirrored with probability `flip`; then, each with its probability, colour jitter, greyscale,
// a Gaussian blur and the inversion of values from 128 on.
struct ViewAugment {
  std::vector<double> scale = {0.08, 1.0}, ratio = {0.75, 4.0 / 3};
  double flip = 0.5;
  std::vector<double> color_jitter = {0.4, 0.4, 0.2, 0.1};
  double jitter = 0.8, grayscale = 0.2, blur = 0, solarize = 0;

  template <class V>
  void visit(V& v) {
    v("scale", scale, "share of the area of a random crop");
    v("ratio", ratio, "its aspect ratio");
    v("flip", flip, between(0, 1), "probability of a horizontal flip");
    v("color_jitter", color_jitter, "brightness, contrast, saturation[, hue]: factors from 1 - x to 1 + x");
    v("jitter", jitter, between(0, 1), "its probability");
    v("grayscale", grayscale, between(0, 1), "probability of a grey image");
    v("blur", blur, between(0, 1), "probability of a Gaussian blur with a radius of 0.1 to 2 pixels");
    v("solarize", solarize, between(0, 1), "probability of an inversion of values from 128 on");
  }
};

// Makes "image" of a view, as make_train_transform. Throws a usage error that names an invalid key.
std::shared_ptr<const Transform> make_view_transform(const Preprocess& preprocess,
                                                     const ViewAugment& augment);

// Makes each view of a sample with its own draws; fields "image_0", "image_1", ….
std::shared_ptr<const Transform> join_views(std::vector<std::shared_ptr<const Transform>> views);

// Decodes each image once, for a `reader` that would decode parts of it several times, exactly. The result is the same.
std::shared_ptr<const Transform> decode_once(std::shared_ptr<const Transform> reader, bool apply_exif);

}  // namespace tessera::data
