// Effective receptive field of a model (Ding et al. 2022, RepLKNet): the pixels that centre features depend
// on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

// Returns the contribution of each pixel, [height, width]: max(0, gradient) summed over images and channels
// of gradients [images, 3, height, width].
std::vector<double> contribution(std::span<const float> gradients, int64_t height, int64_t width);
// Returns log10(contribution + 1) divided by its maximum, as in the paper's figures.
std::vector<double> contribution_map(std::span<const double> contribution);

// The smallest centred box with at least a share of the total contribution, with the image's aspect ratio.
struct ReceptiveArea {
  int64_t side = 0, box_height = 0, box_width = 0;  // side of the box in a square image
  double share = 0;                                 // contribution inside the box
  double area = 0;                                  // the box, relative to the image
};
ReceptiveArea receptive_area(std::span<const double> contribution, int64_t height, int64_t width,
                             double share);

}  // namespace tessera::eval
