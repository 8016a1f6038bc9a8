// Affine maps of images, bit for bit as in Pillow's Image.transform and Image.rotate on RGB.
#pragma once

#include <array>
#include <cstdint>

#include "data/transforms/resize.h"
#include "io/images/image.h"

namespace tessera::data {

using Colour = std::array<uint8_t, 3>;

// Output pixel (x, y) samples the image at (a x + b y + c, d x + e y + f), where `matrix` = {a, b, c, d, e,
// f} and pixel centres are at halves. Outside pixels become `fill`. Interpolation: nearest, bilinear or
// bicubic (not antialiased).
Image affine(const Image& image, const std::array<double, 6>& matrix, Interpolation interpolation,
             const Colour& fill);

// Rotates counterclockwise about the centre and keeps the size.
Image rotate(const Image& image, double degrees, Interpolation interpolation, const Colour& fill);

}  // namespace tessera::data
