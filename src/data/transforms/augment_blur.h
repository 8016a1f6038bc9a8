// Blurs, bit for bit as in Pillow on 8-bit images of 1 or 3 channels.
#pragma once

#include "io/images/image.h"

namespace tessera::data {

// Computes the mean over 2 * radius + 1 pixels; the outermost two are weighted by the radius' fraction; edges
// repeat. Runs `passes` times along the rows, then as often down the columns.
Image box_blur(const Image& image, double radius, int passes = 1);

// Applies three extended box blurs with a total variance of radius^2. (Gwosdek et al., "Theoretical
// foundations of Gaussian convolution by extended box filtering", 2011.)
Image gaussian_blur(const Image& image, double radius);

// Applies a 3x3 filter with weights 5 / 13 in the middle and 1 / 13 elsewhere; the border is unchanged.
Image smooth(const Image& image);

}  // namespace tessera::data
