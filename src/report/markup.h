// Parts of pages: escaped text, embedded images, and drawings as SVG.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

#include "io/images/image.h"

namespace tessera::report {

// Returns text that is safe between tags and in double-quoted attributes, in XML and HTML. Class names and
// paths are untrusted: control characters and invalid UTF-8 become U+FFFD.
std::string escape(std::string_view words);

// Returns "data:image/png;base64,…"; PNG for small images and for one channel, JPEG (quality 85) from 128 x
// 128 pixels.
std::string data_uri(const Image& image);

// Returns a readable number: at most `digits` significant digits, no trailing zeros, 1.2e-05 if the plain
// form is long.
std::string compact(double value, int digits = 4);

// A drawing as SVG text: a few shapes, and the shared look of all charts.
//
// Colours come from the page's CSS variables, with fallback values. So a drawing follows the page's light or
// dark theme and also works as a separate file. Coordinates are pixels, y downwards.

class Svg {
 public:
  // `label` is for screen readers.
  Svg(double width, double height, std::string_view label);

  enum class Anchor { start, middle, end };

  // `style` is a class of the shared look ("grid", "axis", "ink", …) or empty; `extra` is raw attributes.
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  void rect(double x, double y, double width, double height, std::string_view style,
            std::string_view extra = {}, std::string_view tooltip = {});
  void circle(double x, double y, double radius, std::string_view extra, std::string_view tooltip = {});
  // `data` is an SVG path of numbers and letters.
  void path(std::string_view data, std::string_view extra);
  void text(double x, double y, Anchor anchor, std::string_view style, std::string_view words,
            std::string_view extra = {});

  // Returns the whole element, <svg …>…</svg>.
  std::string finish() const;

 private:
  std::string head_;
  std::ostringstream body_;
};

// Returns "12.3": precise enough for a pixel, and short.
std::string pixels(double value);

// Returns the colour of the i-th series: eight that colour-blind readers can distinguish, then the first
// again.
std::string series_colour(size_t index);

// Returns the approximate width of text in pixels at a font size (sans-serif).
double text_width(std::string_view words, double font_size);

// Returns text cut to fit a width, with an ellipsis; never inside a UTF-8 sequence.
std::string fit_text(std::string_view words, double font_size, double width);

}  // namespace tessera::report
