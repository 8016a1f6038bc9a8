// Training crops of an image with its mask, as mmseg makes them: resized at random in proportion, cut at random so
// that no class fills most of it, mirrored. Resizing is Pillow's (mmseg's OpenCV does not smooth where it shrinks).
#pragma once

#include <vector>

#include "data/base/draws.h"
#include "data/base/geometry.h"
#include "data/transforms/resize.h"
#include "io/images/image.h"

namespace tessera::data {

// The size of a picture that fits into scale[0] x scale[1] either way: both sides times the smaller of longest /
// longest and shortest / shortest, rounded (mmcv's rescale_size).
Extent fit_into(Extent picture, const std::vector<int64_t>& scale);

struct SegmentationCrop {
  std::vector<int64_t> scale = {2048, 512};  // what a picture fits into at ratio 1
  std::vector<double> ratio = {0.5, 2.0};    // factor on the scale, drawn between these
  double most_of_one_class = 0.75;           // share of a crop that one class may fill; 1: any
  double flip = 0.5;                         // probability
};

// What was drawn for one image.
struct CropPlan {
  Extent resized;
  Box window;  // of the resized picture: at most as large as the crop
  bool mirrored = false;
};

// Draws in the order of mmseg: ratio, row and column of each crop that is tried, mirror. `mask`: one channel, `ignored`
// where there is no class; `crop` is the output's size.
CropPlan plan_crop(const Image& mask, const SegmentationCrop& config, Extent crop, uint8_t ignored,
                   Draws& draws);

// The planned part of the mask (by its nearest pixels), and of the picture, [window.height, window.width].
Image crop_mask(const Image& mask, const CropPlan& plan);
Image crop_picture(const Image& picture, const CropPlan& plan,
                   Interpolation interpolation = Interpolation::bilinear);

// Set in at the left and top of a picture of that size, `fill` elsewhere.
Image padded_to(const Image& image, Extent size, uint8_t fill);

}  // namespace tessera::data
