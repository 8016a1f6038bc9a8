// Inference from an image to the class of each pixel.
#pragma once

#include <string>
#include <vector>

#include "data/transforms/resize.h"
#include "tasks/dense/pixel_scores.h"

namespace tessera::tasks {

struct SegmentInference {
  bool slide = true;     // windows, or the whole image at once
  int64_t crop = 512;    // side of a window in pixels
  int64_t stride = 341;  // pixels between windows
  bool fading = false;   // windows are aligned and fade into each other (WindowPlan), else equal weights
  // The size that images are fitted into (mmcv's rule, data::fit_into); empty: unchanged.
  std::vector<int64_t> scale = {2048, 512};
  std::vector<double> scales = {1};        // factors on `scale` (or image size); probabilities are averaged
  bool flip = false;                       // adds each scale mirrored
  int64_t at_once = 4;                     // windows in one batch
  int64_t most_scores = int64_t{1} << 27;  // beyond it, scores are resized to the image in bands of rows
};
// Throws usage errors.
void check_inference(const SegmentInference& how);

// The model's interface for inference.
struct PixelModel {
  ScoreImages score;  // maps normalised images of any size to scores
  const data::Normalisation* normalisation = nullptr;
  torch::TensorOptions options;  // device and dtype of its input
  int64_t classes = 0;
  int unit = 1;                                                       // pixels per cell of its coarsest grid
  data::Interpolation interpolation = data::Interpolation::bilinear;  // for resizing images
};

// Returns the class of each pixel of a picture with 3 channels, as one channel. Sets `finite` to false if a
// score is not finite, as after a diverged training. With one unmirrored scale and no resizing, windows are
// finished from top to bottom, so memory grows only with the width. Otherwise scores are resized to a large
// image in bands of rows. Throws if the scores of all views exceed the machine's memory.
Image segment_image(const PixelModel& model, const Image& picture, const SegmentInference& how, bool& finite);

// Zero-pads images at the right and bottom so that their sides are multiples of `unit`. Resizes the output of
// `score`, which may have any grid, to pixels and crops it to the image.
torch::Tensor score_padded(const torch::Tensor& images, int64_t unit, const ScoreImages& score);

}  // namespace tessera::tasks
