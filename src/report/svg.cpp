#include "report/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "report/markup.h"

namespace tessera::report {
namespace {

constexpr std::string_view kLook =
    "<style>"
    ".ts{font-family:var(--font,system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif)}"
    ".ts-title{font-size:13px;font-weight:600;fill:var(--ink,#1c2230)}"
    ".ts-label{font-size:11px;fill:var(--muted,#667085)}"
    ".ts-ink{font-size:11px;fill:var(--ink,#1c2230)}"
    ".ts-light{font-size:11px;fill:#fff}"
    ".ts-grid{stroke:var(--grid,#e6e9f0);stroke-width:1}"
    ".ts-axis{stroke:var(--axis,#b8bfcc);stroke-width:1}"
    ".ts-frame{fill:none;stroke:var(--grid,#e6e9f0);stroke-width:1}"
    ".ts-track{fill:var(--grid,#e6e9f0)}"
    ".ts-bar{fill:var(--accent,#3b6fd4)}"
    ".ts-miss{fill:var(--miss,#d1495b)}"
    "</style>";

constexpr std::array<std::string_view, 8> kSeries = {"#3b6fd4", "#e07b39", "#2a9d7f", "#b4549c",
                                                     "#c9a227", "#5aa9e6", "#d1495b", "#7f8a9b"};

std::string tooltip_of(std::string_view tooltip) {
  return tooltip.empty() ? "" : "<title>" + escape(tooltip) + "</title>";
}

std::string class_of(std::string_view style) {
  return style.empty() ? "" : " class=\"ts-" + std::string(style) + "\"";
}

std::string spaced(std::string_view extra) { return extra.empty() ? "" : " " + std::string(extra); }

}  // namespace

std::string pixels(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1f", std::clamp(value, -1e6, 1e6));
  std::string digits = buffer.data();
  if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return digits == "-0" ? "0" : digits;
}

std::string series_colour(size_t index) { return std::string(kSeries[index % kSeries.size()]); }

double text_width(std::string_view words, double font_size) {
  double width = 0;
  for (const char c : words) {
    if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) continue;  // inside a UTF-8 sequence
    const bool narrow = std::string_view("iljtfr.,:;|!'()[] ").find(c) != std::string_view::npos;
    width += narrow ? 0.38 : (c >= 'A' && c <= 'Z') || c == 'm' || c == 'w' || c == '%' ? 0.76 : 0.6;
  }
  return width * font_size;
}

std::string fit_text(std::string_view words, double font_size, double width) {
  if (text_width(words, font_size) <= width) return std::string(words);
  const double room = width - 0.6 * font_size;
  while (!words.empty() && text_width(words, font_size) > room) {
    while (words.size() > 1 && (static_cast<unsigned char>(words.back()) & 0xC0) == 0x80)
      words.remove_suffix(1);
    words.remove_suffix(1);
  }
  return std::string(words) + "…";
}

Svg::Svg(double width, double height, std::string_view label) {
  const std::string size = pixels(width) + " " + pixels(height);
  head_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ts\" viewBox=\"0 0 " + size + "\" width=\"" +
          pixels(width) + "\" height=\"" + pixels(height) + "\" role=\"img\" aria-label=\"" + escape(label) +
          "\">" + std::string(kLook);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view style) {
  body_ << "<line x1=\"" << pixels(x1) << "\" y1=\"" << pixels(y1) << "\" x2=\"" << pixels(x2) << "\" y2=\""
        << pixels(y2) << "\"" << class_of(style) << "/>";
}

void Svg::rect(double x, double y, double width, double height, std::string_view style,
               std::string_view extra, std::string_view tooltip) {
  body_ << "<rect x=\"" << pixels(x) << "\" y=\"" << pixels(y) << "\" width=\""
        << pixels(std::max(0.0, width)) << "\" height=\"" << pixels(std::max(0.0, height)) << "\""
        << class_of(style) << spaced(extra) << ">" << tooltip_of(tooltip) << "</rect>";
}

void Svg::circle(double x, double y, double radius, std::string_view extra, std::string_view tooltip) {
  body_ << "<circle cx=\"" << pixels(x) << "\" cy=\"" << pixels(y) << "\" r=\"" << pixels(radius) << "\""
        << spaced(extra) << ">" << tooltip_of(tooltip) << "</circle>";
}

void Svg::path(std::string_view data, std::string_view extra) {
  body_ << "<path d=\"" << data << "\"" << spaced(extra) << "/>";
}

void Svg::text(double x, double y, Anchor anchor, std::string_view style, std::string_view words,
               std::string_view extra) {
  constexpr std::array<std::string_view, 3> kAnchors = {"start", "middle", "end"};
  body_ << "<text x=\"" << pixels(x) << "\" y=\"" << pixels(y) << "\" text-anchor=\""
        << kAnchors[static_cast<size_t>(anchor)] << "\"" << class_of(style) << spaced(extra) << ">"
        << escape(words) << "</text>";
}

std::string Svg::finish() const { return head_ + body_.str() + "</svg>"; }

}  // namespace tessera::report
