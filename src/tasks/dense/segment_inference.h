// From an image to the class of each of its pixels.
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
  bool fading = false;   // windows are aligned and fade into each other (WindowPlan), else all count alike
  // What an image is made to fit into before (mmcv's rule, data::fit_into); empty: it stays as it is.
  std::vector<int64_t> scale = {2048, 512};
  std::vector<double> scales = {1};  // factors on `scale` (or on the image), whose probabilities are averaged
  bool flip = false;                 // each scale mirrored too
  int64_t at_once = 4;               // windows that go through the model together
};
// Usage errors.
void check_inference(const SegmentInference& how);

// The model as inference sees it.
struct PixelModel {
  ScoreImages score;  // normalised images of any size
  const data::Normalisation* normalisation = nullptr;
  torch::TensorOptions options;  // device and type of its input
  int64_t classes = 0;
  int unit = 1;                                                       // pixels of its coarsest cell
  data::Interpolation interpolation = data::Interpolation::bilinear;  // of images that are resized
};

// One channel, the class of each pixel of the picture (3 channels); sets `finite` to false where a score is no finite
// number, which happens to weights whose training went astray. In one scale and not mirrored, windows of an image
// that is not resized are finished from top to bottom, so that memory grows with its width alone.
Image segment_image(const PixelModel& model, const Image& picture, const SegmentInference& how, bool& finite);

// Pads images right and below with 0 so that their sides are multiples of `unit`, and cuts the scores, which `score`
// gives on any grid, to the image again after resizing them to its pixels.
torch::Tensor score_padded(const torch::Tensor& images, int64_t unit, const ScoreImages& score);

}  // namespace tessera::tasks
