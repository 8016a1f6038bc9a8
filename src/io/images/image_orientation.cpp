// The orientation in the metadata of an image file.
#include <zlib.h>

#include <cctype>
#include <cstring>
#include <string_view>
#include <vector>

#include "io/images/image_codec.h"

namespace tessera::codec {
namespace {

constexpr size_t kMostTextBytes = size_t{1} << 20;  // of an inflated text in a PNG, as in Pillow

std::string_view as_letters(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns the orientation in a TIFF block (0 to 65535); none if it has no such entry.
std::optional<int> orientation_in(Bytes tiff) {
  if (tiff.size() < 8) return std::nullopt;
  const bool little = byte_at(tiff, 0) == 'I';
  auto u16 = [&](size_t i) -> uint32_t {
    const uint32_t v = big_endian16(tiff, i);
    return little ? (v >> 8 | (v & 0xff) << 8) : v;
  };
  auto u32 = [&](size_t i) -> uint32_t {
    return little ? u16(i) | u16(i + 2) << 16 : u16(i) << 16 | u16(i + 2);
  };
  const uint64_t directory = u32(4);
  if (directory + 2 > tiff.size()) return std::nullopt;
  const uint32_t entries = u16(directory);
  for (uint32_t e = 0; e < entries; ++e) {
    const uint64_t at = directory + 2 + 12 * uint64_t{e};
    if (at + 12 > tiff.size()) return std::nullopt;
    if (u16(at) != 0x0112) continue;
    const uint32_t value = u16(at + 2) == 4 ? u32(at + 8) : u16(at + 8);
    return static_cast<int>(value & 0xffff);
  }
  return std::nullopt;
}

// Returns the bytes of hexadecimal digits up to the first letter that is neither a digit nor a blank.
std::vector<std::byte> from_hex(std::string_view digits) {
  std::vector<std::byte> bytes;
  int half = -1;
  for (const char letter : digits) {
    const auto c = static_cast<unsigned char>(letter);
    if (std::isspace(c)) continue;
    if (!std::isxdigit(c)) break;
    const int digit = std::isdigit(c) ? c - '0' : std::tolower(c) - 'a' + 10;
    if (half >= 0) bytes.push_back(static_cast<std::byte>(half << 4 | digit));
    half = half >= 0 ? -1 : digit;
  }
  return bytes;
}

// Returns the text of a chunk after its compression method; empty if it is broken or too long.
std::string inflated_text(std::string_view packed) {
  std::string out(kMostTextBytes, '\0');
  uLongf size = out.size();
  const int state = uncompress(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(packed.data()), packed.size());
  out.resize(state == Z_OK ? size : 0);
  return out;
}

// Returns the text of a tEXt, zTXt or iTXt chunk, which follows its key and a zero byte.
std::string text_after_key(std::string_view kind, std::string_view rest) {
  if (kind == "tEXt") return std::string(rest);
  if (kind == "zTXt") return rest.empty() ? "" : inflated_text(rest.substr(1));
  if (rest.size() < 2) return "";
  const bool packed = rest[0] != 0;
  rest.remove_prefix(2);
  for (int i = 0; i < 2; ++i) {  // language, translated key
    const size_t end = rest.find('\0');
    if (end == std::string_view::npos) return "";
    rest.remove_prefix(end + 1);
  }
  return packed ? inflated_text(rest) : std::string(rest);
}

}  // namespace

void Orientation::add_exif(Bytes block) {
  while (as_letters(block).starts_with(std::string_view("Exif\0\0", 6))) block = block.subspan(6);
  if (!has_exif_) exif_ = orientation_in(block);
  has_exif_ = true;
}

void Orientation::add_xmp(Bytes packet) {
  constexpr std::string_view kKey = "tiff:Orientation";
  const std::string_view words = as_letters(packet);
  xmp_.reset();
  for (size_t at = words.find(kKey); at != std::string_view::npos; at = words.find(kKey, at + 1)) {
    std::string_view value = words.substr(at + kKey.size());
    const size_t sign = value.starts_with("=\"") ? 2 : value.starts_with(">") ? 1 : 0;
    if (sign == 0 || value.size() <= sign || value[sign] < '0' || value[sign] > '9') continue;
    xmp_ = value[sign] - '0';
    return;
  }
}

void Orientation::add_png_text(std::string_view kind, Bytes content) {
  const std::string_view words = as_letters(content);
  const size_t end = words.find('\0');
  const std::string_view key = words.substr(0, end);
  const bool xmp = key == "XML:com.adobe.xmp", profile = key == "Raw profile type exif";
  if (end == std::string_view::npos || (!xmp && !profile)) return;
  const std::string value = text_after_key(kind, words.substr(end + 1));
  if (xmp) add_xmp(std::as_bytes(std::span(value)));
  if (!profile) return;
  size_t digits = 0;  // after "\nexif\n     42\n"
  for (int line = 0; line < 3; ++line) {
    digits = value.find('\n', digits);
    if (digits++ == std::string::npos) return;
  }
  profile_ = orientation_in_profile(std::string_view(value).substr(digits));
}

std::optional<int> Orientation::orientation_in_profile(std::string_view digits) {
  const std::vector<std::byte> block = from_hex(digits);
  Orientation inner;
  inner.add_exif(block);
  return inner.exif_;
}

int Orientation::value() const {
  const std::optional<int> exif = has_exif_ ? exif_ : profile_;
  const int value = exif ? *exif : xmp_.value_or(1);
  return value >= 1 && value <= 8 ? value : 1;
}

}  // namespace tessera::codec
