// Training crops of an image with its mask, as in mmseg: random scale, a random crop that no class dominates,
// random flip. Resizing is Pillow's (mmseg's OpenCV does not antialias when it shrinks).
#pragma once

#include <vector>

#include "data/base/draws.h"
#include "data/base/geometry.h"
#include "data/transforms/resize.h"
#include "io/images/image.h"

namespace tessera::data {

// Returns the size of an image fitted into scale[0] x scale[1] in either orientation. Both sides are
// multiplied by the smaller of longest / longest and shortest / shortest, and rounded (mmcv's rescale_size).
Extent fit_into(Extent picture, const std::vector<int64_t>& scale);

struct SegmentationCrop {
  std::vector<int64_t> scale = {2048, 512};  // the size to fit images into, before the random factor
  std::vector<double> ratio = {0.5, 2.0};    // range of the random factor on that size
  double most_of_one_class = 0.75;           // maximum share of one class in a crop; 1: any
  double flip = 0.5;                         // probability
};

// The random choices for one image.
struct CropPlan {
  Extent resized;
  Box window;  // in the resized image; at most as large as the crop
  bool mirrored = false;
};

// Draws in mmseg's order: scale factor, row and column of each attempted crop, mirror. `mask`: one channel,
// `ignored` for pixels without a class; `crop` is the output's size.
CropPlan plan_crop(const Image& mask, const SegmentationCrop& config, Extent crop, uint8_t ignored,
                   Draws& draws);

// Return the planned region of the mask (nearest pixels) and of the image, [window.height, window.width].
Image crop_mask(const Image& mask, const CropPlan& plan);
Image crop_picture(const Image& picture, const CropPlan& plan,
                   Interpolation interpolation = Interpolation::bilinear);

// Returns an image of that size with `image` at the top left and `fill` elsewhere.
Image padded_to(const Image& image, Extent size, uint8_t fill);

}  // namespace tessera::data
