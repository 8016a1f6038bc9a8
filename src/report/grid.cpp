#include "report/grid.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/transforms/resize.h"
#include "report/markup.h"

namespace tessera::report {
namespace {

constexpr int kCaption = kGlyphHeight + 9;  // rows under a picture

Image with_three_channels(const Image& image) {
  if (image.channels == 3) return image;
  check(image.channels == 1, "image_grid: an image has ", image.channels, " channels, must have 1 or 3");
  Image out(image.width, image.height, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    std::fill_n(out.pixels.begin() + 3 * static_cast<ptrdiff_t>(i), 3, image.pixels[i]);
  return out;
}

// Fits the picture into side x side: enlarges small ones by a whole factor with sharp pixels, shrinks large
// ones with a filter.
Image fitted(const Image& picture, int side) {
  const Image image = with_three_channels(picture);
  const int longest = std::max(image.width, image.height);
  if (longest <= side) {
    const int factor = side / longest;
    return data::resize(image, image.width * factor, image.height * factor, data::Interpolation::nearest);
  }
  return data::shrunk_to_fit(image, side);
}

void paste(Image& canvas, const Image& picture, int left, int top) {
  for (int y = 0; y < picture.height; ++y)
    std::copy_n(picture.row(y), 3 * picture.width, canvas.row(top + y) + 3 * left);
}

void frame(Image& canvas, int left, int top, int width, int height, const Colour& colour) {
  const auto dot = [&](int x, int y) { std::copy(colour.begin(), colour.end(), canvas.row(y) + 3 * x); };
  for (int x = left; x < left + width; ++x) dot(x, top), dot(x, top + height - 1);
  for (int y = top; y < top + height; ++y) dot(left, y), dot(left + width - 1, y);
}

int columns_of(const std::vector<Cell>& cells, const GridOptions& options) {
  check(!cells.empty(), "image_grid: no images");
  check(options.cell >= 8 && options.cell <= 4096 && options.gap >= 2 && options.columns >= 0,
        "image_grid: cell ", options.cell, ", gap ", options.gap, ", columns ", options.columns,
        ": cell must be 8 to 4096, gap at least 2, columns not negative");
  const int count = static_cast<int>(cells.size());
  return std::min(count,
                  options.columns > 0 ? options.columns : static_cast<int>(std::ceil(std::sqrt(count))));
}

}  // namespace

std::string fitted_caption(const std::string& caption, int width) {
  if (words_width(caption) <= width) return caption;
  std::string shorter = caption;
  while (!shorter.empty() && words_width(shorter + "..") > width) {
    while (shorter.size() > 1 && (static_cast<unsigned char>(shorter.back()) & 0xC0) == 0x80)
      shorter.pop_back();
    shorter.pop_back();
  }
  return shorter + "..";
}

Image image_grid(const std::vector<Cell>& cells, const GridOptions& options) {
  const int count = static_cast<int>(cells.size()), columns = columns_of(cells, options);
  const int rows = (count + columns - 1) / columns;
  const bool captions =
      std::any_of(cells.begin(), cells.end(), [](const Cell& c) { return !c.caption.empty(); });
  const int row_height = options.cell + options.gap + (captions ? kCaption : 0);
  Image canvas(options.gap + columns * (options.cell + options.gap), options.gap + rows * row_height);
  for (size_t i = 0; i < canvas.pixels.size(); ++i) canvas.pixels[i] = options.background[i % 3];
  for (int i = 0; i < count; ++i) {
    const Cell& cell = cells[static_cast<size_t>(i)];
    check(cell.picture.width > 0 && cell.picture.height > 0, "image_grid: image ", i, " has no pixels");
    const Image picture = fitted(cell.picture, options.cell);
    const int left = options.gap + i % columns * (options.cell + options.gap);
    const int top = options.gap + i / columns * row_height;
    const int x = left + (options.cell - picture.width) / 2, y = top + (options.cell - picture.height) / 2;
    paste(canvas, picture, x, y);
    frame(canvas, x - 1, y - 1, picture.width + 2, picture.height + 2, cell.frame);
    const std::string caption = fitted_caption(cell.caption, options.cell);
    draw_words(canvas, left + (options.cell - words_width(caption)) / 2, top + options.cell + 6, caption,
               options.ink);
  }
  return canvas;
}

std::string svg_grid(const std::vector<Cell>& cells, const GridOptions& options) {
  constexpr int kFontSize = 12, kCaptionRows = 20;
  const int count = static_cast<int>(cells.size()), columns = columns_of(cells, options);
  const int rows = (count + columns - 1) / columns, step = options.cell + options.gap;
  const int width = options.gap + columns * step, height = options.gap + rows * (step + kCaptionRows);
  std::string out = text("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ", height,
                         "\" width=\"", width, "\" height=\"", height, "\" font-size=\"", kFontSize,
                         "\" font-family=\"system-ui,sans-serif\" text-anchor=\"middle\">\n",
                         "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  for (int i = 0; i < count; ++i) {
    const Cell& cell = cells[static_cast<size_t>(i)];
    check(cell.picture.width > 0 && cell.picture.height > 0, "svg_grid: image ", i, " has no pixels");
    const int left = options.gap + i % columns * step,
              top = options.gap + i / columns * (step + kCaptionRows);
    const bool tiny = std::max(cell.picture.width, cell.picture.height) <= options.cell;
    out += text("<image x=\"", left, "\" y=\"", top, "\" width=\"", options.cell, "\" height=\"",
                options.cell, "\"", tiny ? " style=\"image-rendering:pixelated\"" : "", " href=\"",
                data_uri(cell.picture), "\"/>\n<text x=\"", left + options.cell / 2, "\" y=\"",
                top + options.cell + 15, "\">", escape(fit_text(cell.caption, kFontSize, options.cell)),
                "<title>", escape(cell.caption), "</title></text>\n");
  }
  return out + "</svg>\n";
}

bool has_glyphs(std::string_view words) {
  return std::all_of(words.begin(), words.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
}

}  // namespace tessera::report
