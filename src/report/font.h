// A small bitmap font for text on images.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "io/images/image.h"

namespace tessera::report {

using Colour = std::array<uint8_t, 3>;

constexpr int kGlyphWidth = 5, kGlyphHeight = 7, kAdvance = 6;

// Returns the width in pixels at `scale` (each dot is a square of `scale` pixels).
int words_width(std::string_view words, int scale = 1);

// Draws text with its upper left corner at (x, y), clipped at the image border. Characters outside ASCII, one
// per UTF-8 sequence, become boxes. The image has 3 channels.
void draw_words(Image& image, int x, int y, std::string_view words, const Colour& colour, int scale = 1);

}  // namespace tessera::report
