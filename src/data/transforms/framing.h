// Framing of an image for image-text models before normalisation: square padding, fitting into a size with
// black padding, centre crop, and the choice of the best of several sizes (LLaVA 1.5 and 1.6).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/base/geometry.h"
#include "data/transforms/resize.h"
#include "io/images/image.h"

namespace tessera::data {

// Pads to a square of the longer side, with the image in the centre and `colour` around it.
Image pad_to_square(const Image& image, const std::array<uint8_t, 3>& colour);

// Resizes the image to fit into `size`, keeping its aspect ratio, and centres it on black.
enum class FitRounding { up, nearest };  // the shorter side's: LLaVA's, and OpenCLIP's `longest` mode
Image fit_into(const Image& image, Extent size, FitRounding rounding);

// Resizes with antialiased bicubic filters as PyTorch does for bytes: 16-bit weights, rounded and clipped to
// bytes after each of the two passes (Pillow's weights have 22 bits; resize.h). Hugging Face's image
// processors use it.
Image resize_by_short_weights(const Image& image, int width, int height);

// Resizes the short side to `side` by resize_by_short_weights, then crops the centre. Offsets are rounded
// down as in Hugging Face's image processors; torchvision rounds half to even (geometry.h: centre).
Image shortest_then_centre(const Image& image, int side);

// Returns the size that keeps most of the image's pixels; of several, the one with the least padding.
Extent best_size(Extent picture, const std::vector<Extent>& sizes);

}  // namespace tessera::data
