#include "report/markup.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "core/control_characters.h"
#include "core/text.h"

namespace tessera::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Returns the length of the well-formed UTF-8 sequence at the start, or 0.
size_t sequence_length(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const auto follows = [&](size_t i) { return i < bytes.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!follows(1) || !follows(2)) return 0;
    const bool overlong = first == 0xE0 && byte(1) < 0xA0, surrogate = first == 0xED && byte(1) > 0x9F;
    const bool no_character = first == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE;
    return overlong || surrogate || no_character ? 0 : 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!follows(1) || !follows(2) || !follows(3)) return 0;
    const bool outside = (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F);
    return outside ? 0 : 4;
  }
  return 0;
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '&':
      out += "&amp;";
      return;
    case '<':
      out += "&lt;";
      return;
    case '>':
      out += "&gt;";
      return;
    case '"':
      out += "&quot;";
      return;
    case '\'':
      out += "&#39;";
      return;
    default:
      break;
  }
  const auto code = static_cast<unsigned char>(c);
  if ((code < 0x20 && c != '\n' && c != '\t') || code == 0x7F)
    out += kReplacement;
  else
    out += c;
}

}  // namespace

std::string escape(std::string_view words) {
  std::string out;
  out.reserve(words.size());
  while (!words.empty()) {
    const size_t length = sequence_length(words);
    if (length == 1)
      append_escaped(out, words.front());
    else
      out += length == 0 || is_control(words.substr(0, length)) ? kReplacement : words.substr(0, length);
    words.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string data_uri(const Image& image) {
  const bool small = int64_t{image.width} * image.height < 128 * 128;
  if (small || image.channels == 1) return "data:image/png;base64," + to_base64(encode_png(image));
  return "data:image/jpeg;base64," + to_base64(encode_jpeg(image, 85));
}

std::string compact(double value, int digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*g", digits, value);
  return buffer[0] == '-' &&
                 std::string_view(buffer.data()).find_first_not_of("-0.") == std::string_view::npos
             ? "0"
             : std::string(buffer.data());
}

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
