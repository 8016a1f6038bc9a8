#include "report/markup.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "core/base64.h"

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
      out += length == 0 ? kReplacement : words.substr(0, length);
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

}  // namespace tessera::report
