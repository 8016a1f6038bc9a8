// Blurring, bit for bit as Pillow does it on 8-bit pictures of 1 or 3 channels.
#pragma once

#include "io/images/image.h"

namespace tessera::data {

// The mean over 2 * radius + 1 pixels, the outermost two weighing by the radius' fraction; edges repeat.
// `passes` times along the rows, then as often down the columns.
Image box_blur(const Image& image, double radius, int passes = 1);

// Three extended box blurs whose variance is radius^2. (Gwosdek et al., "Theoretical foundations of Gaussian
// convolution by extended box filtering", 2011.)
Image gaussian_blur(const Image& image, double radius);

// 3x3 with weights 1 and, in the middle, 5, over 13; the border stays as it is.
Image smooth(const Image& image);

}  // namespace tessera::data
