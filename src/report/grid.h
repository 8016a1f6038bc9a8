// Words in images: images side by side with captions, and overlays with the names of their classes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/images/image.h"

namespace tessera::data {
struct DrawnObject;
}

namespace tessera::report {

using Colour = std::array<uint8_t, 3>;

constexpr int kGlyphWidth = 5, kGlyphHeight = 7, kAdvance = 6;

// Returns the width in pixels at `scale` (each dot is a square of `scale` pixels).
int words_width(std::string_view words, int scale = 1);

// Returns the caption, cut to end in ".." if it is wider than `width` at scale 1.
std::string fitted_caption(const std::string& caption, int width);

// Draws text with its upper left corner at (x, y), clipped at the image border. Characters outside ASCII, one
// per UTF-8 sequence, become boxes. The image has 3 channels.
void draw_words(Image& image, int x, int y, std::string_view words, const Colour& colour, int scale = 1);

struct Cell {
  Image picture;  // 1 or 3 channels
  std::string caption{};
  Colour frame = {208, 213, 224};
};

struct GridOptions {
  int columns = 0;  // 0: as square as possible
  int cell = 128;   // side of the square for each picture; small ones scale by a whole factor
  int gap = 12;
  Colour background = {255, 255, 255}, ink = {28, 34, 48};
};

// Pictures keep their proportions; captions that are too wide end in "..". Throws without cells, or if a
// picture has no pixels.
Image image_grid(const std::vector<Cell>& cells, const GridOptions& options = {});

// The same as a complete SVG file, with captions as text, in any script that the reader's fonts have.
std::string svg_grid(const std::vector<Cell>& cells, const GridOptions& options = {});

// True if image_grid's bitmap font has every character.
bool has_glyphs(std::string_view words);

// Draws objects over the image, each with its class and score ("star 97 %"), and adds a legend of their classes.
// `scores` are shares, one an object.
Image labelled_objects(const Image& image, const std::vector<data::DrawnObject>& objects,
                       const std::vector<double>& scores, const std::vector<std::string>& classes);

// Blends the mask over the image, and adds a legend of the classes that it has.
Image labelled_mask(const Image& image, const Image& mask, const std::vector<std::string>& classes);

}  // namespace tessera::report
