#include "report/markup.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "core/text.h"

namespace tessera::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the UTF-8 character at the front that may stand in a document, 0 if there is none: U+FFFE and
// U+FFFF are well-formed, but no characters.
size_t character_length(std::string_view bytes) {
  return bytes.starts_with("\xEF\xBF\xBE") || bytes.starts_with("\xEF\xBF\xBF") ? 0 : utf8_length(bytes);
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
    const size_t length = character_length(words);
    if (length == 1)
      append_escaped(out, words.front());
    else
      out += length == 0 ? kReplacement : words.substr(0, length);
    words.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string base64(std::span<const std::byte> bytes) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = bytes.size() - i;
    uint32_t group = std::to_integer<uint32_t>(bytes[i]) << 16;
    if (left > 1) group |= std::to_integer<uint32_t>(bytes[i + 1]) << 8;
    if (left > 2) group |= std::to_integer<uint32_t>(bytes[i + 2]);
    out += kAlphabet[group >> 18];
    out += kAlphabet[group >> 12 & 63];
    out += left > 1 ? kAlphabet[group >> 6 & 63] : '=';
    out += left > 2 ? kAlphabet[group & 63] : '=';
  }
  return out;
}

std::string data_uri(const Image& image) {
  const bool small = int64_t{image.width} * image.height < 128 * 128;
  if (small || image.channels == 1) return "data:image/png;base64," + base64(encode_png(image));
  return "data:image/jpeg;base64," + base64(encode_jpeg(image, 85));
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
