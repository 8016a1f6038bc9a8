// Pillow's antialiased resize, bit for bit on uint8 (Resample.c: support scaled by the ratio, horizontal pass first,
// coefficients in 22-bit fixed point, 8-bit rounding between the passes, a pass without change skipped).
#pragma once

#include <string>

#include "io/image.h"

namespace tessera::data {

enum class Interpolation { nearest, box, bilinear, hamming, bicubic, lanczos };

// Usage error naming the right names.
Interpolation parse_interpolation(const std::string& name);

// The part `box` of the picture (fractions of pixels allowed, as Pillow's `box` argument), at width x height.
struct FloatBox {
  double left, top, right, bottom;
};
Image resize(const Image& image, int width, int height, Interpolation interpolation);
Image resize(const Image& image, int width, int height, Interpolation interpolation, const FloatBox& box);

}  // namespace tessera::data
