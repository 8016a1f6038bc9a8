// Histograms of oriented gradients (Dalal & Triggs 2005) as MaskFeat's code computes them (Wei et al. 2022).
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::tasks {

struct HogOptions {
  int64_t bins = 9;    // of unsigned orientations
  int64_t cell = 8;    // side of a cell in pixels
  int64_t window = 0;  // side of a Gaussian window (deviation: window / 2) on the magnitudes; 0 = none
};

// Returns histograms of each channel of images [batch, channels, height, width], sides whole cells:
// [batch, channels, bins, height / cell, width / cell]. Gradients are Sobel's, with reflected borders. A pixel
// counts for one bin; each histogram has length 1, or is 0. Throws Error for smaller images.
torch::Tensor hog(const torch::Tensor& images, const HogOptions& options);

}  // namespace tessera::tasks
