// Pictures side by side in one picture, with words under each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/images/image.h"
#include "report/font.h"

namespace tessera::report {

struct Cell {
  Image picture;  // 1 or 3 channels
  std::string caption{};
  Colour frame = {208, 213, 224};
};

struct GridOptions {
  int columns = 0;  // 0: as near to a square as it goes
  int cell = 128;   // side of the square that each picture is fitted into, whole multiples for small ones
  int gap = 12;
  Colour background = {255, 255, 255}, ink = {28, 34, 48};
};

// Pictures keep their proportions; captions that are too wide end in "..". Fails without cells, or on a
// picture without pixels.
Image image_grid(const std::vector<Cell>& cells, const GridOptions& options = {});

// The same as an SVG file of its own, with captions as text: any script, as the reader's fonts have it.
std::string svg_grid(const std::vector<Cell>& cells, const GridOptions& options = {});

// Whether the bitmap font of image_grid has every character.
bool has_glyphs(std::string_view words);

}  // namespace tessera::report
