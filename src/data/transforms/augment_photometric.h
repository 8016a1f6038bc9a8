// Photometric distortion (Liu et al. 2016, "SSD"), in mmseg's form: bytes between the steps, OpenCV's HSV.
//
//   brightness v + d; contrast v a, before or after the next two; saturation S a; hue (H + d) mod 180
// each with probability 1/2.
#pragma once

#include "data/base/draws.h"
#include "io/images/image.h"

namespace tessera::data {

struct PhotometricConfig {
  double brightness = 32;  // d in -32 … 32
  double contrast[2] = {0.5, 1.5}, saturation[2] = {0.5, 1.5};
  int hue = 18;  // in half degrees; +18 itself is never drawn
};

// Distorts an image of 3 channels in place.
void distort_photometrically(const PhotometricConfig& config, Draws& draws, Image& image);

// Convert between RGB and OpenCV's 8-bit HSV: hue 0 … 179, saturation and value 0 … 255.
Image to_half_degree_hsv(const Image& image);
Image from_half_degree_hsv(const Image& image);

}  // namespace tessera::data
