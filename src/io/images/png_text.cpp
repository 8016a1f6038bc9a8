// Texts in PNG files (PNG specification, third edition, 11.3.3.4).
#include <zlib.h>

#include <array>
#include <cstring>

#include "core/error.h"
#include "io/images/image.h"

namespace tessera {
namespace {

constexpr std::array<unsigned char, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr size_t kFrame = 12;                                      // length, name and checksum of a chunk
constexpr size_t kBehindHeader = kSignature.size() + kFrame + 13;  // the header chunk's content has 13 bytes

uint32_t big_endian(const std::byte* at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(at[i]);
  return value;
}

void append(std::vector<std::byte>& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<std::byte>(value >> shift & 0xff));
}

void append(std::vector<std::byte>& out, const std::string& words) {
  const auto* first = reinterpret_cast<const std::byte*>(words.data());
  out.insert(out.end(), first, first + words.size());
}

bool is_png(std::span<const std::byte> bytes) {
  return bytes.size() >= kBehindHeader &&
         std::memcmp(bytes.data(), kSignature.data(), kSignature.size()) == 0;
}

// The fields between key and text: no compression, no language, no translated key.
std::string between() { return std::string(5, '\0'); }

}  // namespace

std::vector<std::byte> with_png_text(std::vector<std::byte> png, const std::string& key,
                                     const std::string& value) {
  check(is_png(png), "only a PNG can hold a text");
  check(!key.empty() && key.size() < 80, "the key of a PNG's text has ", key.size(),
        " letters, must have 1 to 79");
  std::vector<std::byte> body;
  append(body, "iTXt" + key + between() + value);
  std::vector<std::byte> chunk;
  append(chunk, static_cast<uint32_t>(body.size() - 4));
  chunk.insert(chunk.end(), body.begin(), body.end());
  append(chunk, static_cast<uint32_t>(
                    crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()))));
  png.insert(png.begin() + static_cast<std::ptrdiff_t>(kBehindHeader), chunk.begin(), chunk.end());
  return png;
}

std::string png_text(std::span<const std::byte> png, const std::string& key) {
  if (!is_png(png)) return "";
  std::string found;
  size_t at = kSignature.size();
  while (png.size() - at >= kFrame) {
    const size_t length = big_endian(png.data() + at);
    if (length > png.size() - at - kFrame) return "";
    const std::string name(reinterpret_cast<const char*>(png.data() + at + 4), 4);
    const std::string body(reinterpret_cast<const char*>(png.data() + at + 8), length);
    if (name == "iTXt" && body.starts_with(key + between()))
      found = body.substr(key.size() + between().size());
    if (name == "IEND") return found;
    at += kFrame + length;
  }
  return "";
}

}  // namespace tessera
