// A drawing as SVG text: a few shapes, and the look that all charts share.
//
// Colours come from CSS variables of the page with values of their own behind them, so a drawing follows the
// page's light or dark look and stands alone in a file as well. Coordinates are pixels, y downwards.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace tessera::report {

class Svg {
 public:
  // `label` is what a screen reader says.
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

  // The whole element, <svg …>…</svg>.
  std::string finish() const;

 private:
  std::string head_;
  std::ostringstream body_;
};

// 12.3: enough for a pixel, short in the file.
std::string pixels(double value);

// The colour of the i-th series: eight that colour-blind readers tell apart, then again from the first.
std::string series_colour(size_t index);

// Width of words in pixels at a font size, about (letters of a sans-serif face).
double text_width(std::string_view words, double font_size);

// The words cut to fit a width, with an ellipsis; never inside a UTF-8 sequence.
std::string fit_text(std::string_view words, double font_size, double width);

}  // namespace tessera::report
