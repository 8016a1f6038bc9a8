// Transforms of images with masks, for semantic segmentation.
#pragma once

#include <memory>

#include "data/transforms/segmentation_crop.h"
#include "data/transforms/transform.h"

namespace tessera::data {

struct MaskTraining {
  SegmentationCrop crop;
  bool photometric = true;                // photometric distortion (augment_operations.h)
  std::vector<double> color_jitter = {};  // in addition, as in AugmentConfig
  double jitter_probability = 1;
  std::string interpolation = "bilinear";  // of images, as in Preprocess
};

// Makes "image", f32 [3, height, width], normalised, and "mask", u8 [height, width]: a crop of the randomly
// resized image. If it is smaller, the rest is 0 (the mean) and kIgnoredPixel.
std::shared_ptr<const Transform> make_mask_training(const Preprocess& preprocess, const MaskTraining& options,
                                                    int64_t height, int64_t width);

// Makes fields of the whole unchanged image: "extent", i64 [2]: height and width; "pixels", u8 [pixels, 3],
// and "mask", u8 [pixels, 1], both ragged, row by row. Throws for an image of more than kMostMaskPixels
// pixels.
inline constexpr int64_t kMostMaskPixels = 1 << 24;
std::shared_ptr<const Transform> make_whole_masks(bool apply_exif = true);

}  // namespace tessera::data
