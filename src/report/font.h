// A small bitmap font, for words on pictures.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "io/images/image.h"

namespace tessera::report {

using Colour = std::array<uint8_t, 3>;

constexpr int kGlyphWidth = 5, kGlyphHeight = 7, kAdvance = 6;

// Width in pixels at `scale` (each dot a square of that many pixels).
int words_width(std::string_view words, int scale = 1);

// Writes words with their upper left corner at (x, y), cut at the picture's border. A character outside
// ASCII, one for each UTF-8 sequence, is a box. The picture has 3 channels.
void draw_words(Image& image, int x, int y, std::string_view words, const Colour& colour, int scale = 1);

}  // namespace tessera::report
