// How models of images and texts frame an image before it is normalised: padded to a square, fitted into a size with
// black around it, cut in the middle; and which of several sizes suits an image best (LLaVA 1.5 and 1.6).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/base/geometry.h"
#include "data/transforms/resize.h"
#include "io/images/image.h"

namespace tessera::data {

// A square of the longer side with the image in its middle, `colour` around it.
Image pad_to_square(const Image& image, const std::array<uint8_t, 3>& colour);

// The image resized to fit `size` without losing its proportions, in the middle of black.
enum class FitRounding { up, nearest };  // of the shorter side: LLaVA's, and that of OpenCLIP's longest mode
Image fit_into(const Image& image, Extent size, FitRounding rounding);

// Bicubic with antialiasing as PyTorch has it for bytes: weights of 16 bits, rounded and cut to bytes after each of the two
// passes (Pillow's weights have 22 bits; resize.h). Hugging Face's image processors resize so.
Image resize_by_short_weights(const Image& image, int width, int height);

// That, the short side to `side`, then the middle cut out, with offsets rounded down as Hugging Face's image
// processors do; torchvision's round half to even (geometry.h: centre).
Image shortest_then_centre(const Image& image, int side);

// Of these sizes the one that shows most of the picture's pixels, and of equal ones that which wastes least.
Extent best_size(Extent picture, const std::vector<Extent>& sizes);

}  // namespace tessera::data
