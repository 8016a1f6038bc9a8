// Moving the pixels of a picture: affine maps bit for bit as Pillow's Image.transform and Image.rotate apply
// them to RGB.
#pragma once

#include <array>
#include <cstdint>

#include "data/transforms/resize.h"
#include "io/images/image.h"

namespace tessera::data {

using Colour = std::array<uint8_t, 3>;

// Output pixel (x, y) takes what lies at (a x + b y + c, d x + e y + f) of the picture, `matrix` being {a, b,
// c, d, e, f} and pixels' centres at halves; what lies outside becomes `fill`. nearest, bilinear or bicubic
// (not antialiased).
Image affine(const Image& image, const std::array<double, 6>& matrix, Interpolation interpolation,
             const Colour& fill);

// Counterclockwise about the centre, the size is kept.
Image rotate(const Image& image, double degrees, Interpolation interpolation, const Colour& fill);

}  // namespace tessera::data
