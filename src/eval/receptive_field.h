// The effective receptive field of a model (Ding et al. 2022, RepLKNet): which pixels its features at the centre depend on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

// The sum over images and channels of max(0, gradient), of gradients [images, 3, height, width]: what each pixel contributes,
// [height, width].
std::vector<double> contribution(std::span<const float> gradients, int64_t height, int64_t width);
// log10(contribution + 1), divided by its maximum: as the paper shows it.
std::vector<double> contribution_map(std::span<const double> contribution);

// The smallest centred box that holds at least a share of all contribution, its sides in the proportions of the image.
struct ReceptiveArea {
  int64_t side = 0, box_height = 0, box_width = 0;  // side: that of a square image's box
  double share = 0;                                 // of the contribution inside
  double area = 0;                                  // of the box, as a share of the image
};
ReceptiveArea receptive_area(std::span<const double> contribution, int64_t height, int64_t width,
                             double share);

}  // namespace tessera::eval
