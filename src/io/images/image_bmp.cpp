// BMP by our own reader: palettes of 1, 4 and 8 bits, plain or run-length coded, and colours of 16, 24 and 32
// bits.
#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <vector>

#include "core/error.h"
#include "io/images/image_codec.h"

namespace tessera::codec {

namespace {

constexpr size_t kFileHeader = 14;
enum Compression : uint32_t { kPlain = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3, kAlphaBitFields = 6 };

uint32_t little16(Bytes bytes, size_t i) { return byte_at(bytes, i) | uint32_t{byte_at(bytes, i + 1)} << 8; }
uint32_t little32(Bytes bytes, size_t i) { return little16(bytes, i) | little16(bytes, i + 2) << 16; }

struct Header {
  int width = 0, height = 0, bits = 0;
  bool from_top = false;  // most files store the lowest row first
  uint32_t compression = kPlain;
  size_t palette = 0, entry_bytes = 4,
         entries = 0;               // offset of the palette; blue, green, red of each entry
  size_t pixels = 0;                // offset of the first stored row
  std::array<uint32_t, 3> masks{};  // masks of red, green and blue for 16, 24 and 32 bits

  size_t row_bits() const { return static_cast<size_t>(width) * static_cast<size_t>(bits); }
  size_t stride() const { return (row_bits() + 31) / 32 * 4; }
};

std::array<uint32_t, 3> masks_of(Bytes bytes, const Header& header, size_t size) {
  std::array<uint32_t, 3> masks{};
  if (header.compression == kBitFields || header.compression == kAlphaBitFields)
    for (size_t c = 0; c < 3 && kFileHeader + 52 <= bytes.size(); ++c)
      masks[c] = little32(bytes, kFileHeader + 40 + 4 * c);
  else
    size = 0;
  const bool none = masks == std::array<uint32_t, 3>{};
  if (none && header.bits == 16 && size == 0) return {0x7C00, 0x3E0, 0x1F};
  if (none && header.bits >= 24) return {0xFF0000, 0xFF00, 0xFF};
  return masks;
}

// Reads the fields with places that depend on the header's size.
Header read_fields(Bytes bytes, size_t size, const std::string& name) {
  Header header;
  if (size == 12) {
    header.width = static_cast<int>(little16(bytes, 18));
    header.height = static_cast<int>(little16(bytes, 20));
    header.bits = static_cast<int>(little16(bytes, 24));
    header.entry_bytes = 3;
    return header;
  }
  check(size == 40 || size == 52 || size == 56 || size == 64 || size == 108 || size == 124, name,
        ": broken BMP (a header of ", size, " bytes)");
  check(bytes.size() >= kFileHeader + size, name, ": truncated BMP, the file ends in its headers");
  header.width = static_cast<int>(little32(bytes, 18));
  const auto height = int64_t{static_cast<int32_t>(little32(bytes, 22))};
  header.from_top = height < 0;
  check(height > INT32_MIN, name, ": broken BMP (", height, " rows)");
  header.height = static_cast<int>(std::abs(height));
  header.bits = static_cast<int>(little16(bytes, 28));
  header.compression = little32(bytes, 30);
  header.entries = little32(bytes, 46);
  return header;
}

Header read_header(Bytes bytes, const std::string& name) {
  check(bytes.size() >= kFileHeader + 12, name, ": truncated BMP, the file ends in its headers");
  const size_t size = little32(bytes, kFileHeader);
  Header header = read_fields(bytes, size, name);
  header.pixels = little32(bytes, 10);
  const int bits = header.bits;
  const bool indexed = bits == 1 || bits == 4 || bits == 8;
  const bool known = header.compression == kPlain  ? indexed || bits == 16 || bits == 24 || bits == 32
                     : header.compression == kRle8 ? bits == 8
                     : header.compression == kRle4 ? bits == 4
                     : header.compression == kBitFields || header.compression == kAlphaBitFields
                         ? bits == 16 || bits == 24 || bits == 32
                         : false;
  check(known, name, ": a BMP of ", bits, " bits with compression ", header.compression, " is not supported");
  header.masks = masks_of(bytes, header, size);
  header.palette = kFileHeader + size;
  if (header.entries == 0 && indexed) header.entries = size_t{1} << bits;
  if (!indexed) header.entries = 0;
  check(header.entries <= 65536, name, ": broken BMP (a palette of ", header.entries, " colours)");
  // Some writers set the pixel offset to that of the palette, others to 0.
  const size_t behind = header.palette + header.entries * header.entry_bytes;
  if (header.pixels == 0 || (indexed && header.pixels == header.palette)) header.pixels = behind;
  return header;
}

using Palette = std::array<std::array<uint8_t, 3>, 256>;

Palette read_palette(Bytes bytes, const Header& header, const std::string& name) {
  Palette palette{};  // entries beyond the palette are black
  const size_t count = std::min<size_t>(header.entries, palette.size());
  check(header.palette + count * header.entry_bytes <= bytes.size(), name,
        ": truncated BMP, the file ends in its palette");
  for (size_t i = 0; i < count; ++i)
    for (size_t c = 0; c < 3; ++c)
      palette[i][c] = byte_at(bytes, header.palette + i * header.entry_bytes + 2 - c);
  return palette;
}

// One colour component: the bits of its mask, scaled to 0 to 255.
struct Component {
  int shift = 0;
  uint64_t most = 0;
  explicit Component(uint32_t mask) : shift(mask ? std::countr_zero(mask) : 0), most(mask >> shift) {}
  bool contiguous() const { return (most & (most + 1)) == 0; }
  uint8_t of(uint32_t pixel) const {
    return most == 0 ? 0 : static_cast<uint8_t>((pixel >> shift & most) * 255 / most);
  }
};

// Decodes the indices of a run-length coded image, [height, width] in the file's order. Skipped pixels are 0.
class RunLengths {
 public:
  RunLengths(Bytes bytes, const Header& header, const std::string& name)
      : bytes_(bytes),
        name_(name),
        width_(static_cast<size_t>(header.width)),
        nibbles_(header.compression == kRle4),
        at_(header.pixels),
        out_(width_ * static_cast<size_t>(header.height)) {}

  std::vector<uint8_t> decode() {
    while (done_ < out_.size()) {
      const uint8_t count = next(), value = next();
      if (count > 0)
        repeat(count, value);
      else if (value == 0)
        skip((width_ - done_ % width_) % width_), x_ = 0;
      else if (value == 1)
        break;
      else if (value == 2)
        move();
      else
        copy(value);
    }
    return std::move(out_);
  }

 private:
  uint8_t next() {
    check(at_ < bytes_.size(), name_, ": truncated BMP, the file ends before the image does");
    return byte_at(bytes_, at_++);
  }
  void skip(size_t count) { done_ += std::min(count, out_.size() - done_); }
  void move() {
    const size_t right = next(), up = next();
    skip(right + up * width_);
    x_ = done_ % width_;
  }
  void repeat(size_t count, uint8_t value) {
    count = std::min({count, width_ - std::min(width_, x_), out_.size() - done_});
    for (size_t i = 0; i < count; ++i)
      out_[done_++] = !nibbles_ ? value : static_cast<uint8_t>(i % 2 ? value & 15 : value >> 4);
    x_ += count;
  }
  void copy(size_t count) {
    const size_t kept = std::min(count, out_.size() - done_);
    uint8_t pair = 0;
    for (size_t i = 0; i < kept; ++i) {
      if (!nibbles_ || i % 2 == 0) pair = next();
      out_[done_++] = !nibbles_ ? pair : static_cast<uint8_t>(i % 2 ? pair & 15 : pair >> 4);
    }
    x_ += count;
    at_ += at_ % 2;  // runs start at even offsets
  }

  Bytes bytes_;
  const std::string& name_;
  size_t width_;
  bool nibbles_;
  size_t at_, x_ = 0, done_ = 0;
  std::vector<uint8_t> out_;
};

// Returns a pixel of two to four bytes.
uint32_t pixel_at(Bytes bytes, size_t at, size_t count) {
  uint32_t pixel = 0;
  for (size_t b = 0; b < count; ++b) pixel |= uint32_t{byte_at(bytes, at + b)} << 8 * b;
  return pixel;
}

}  // namespace

ImageInfo bmp_info(Bytes bytes, const std::string& name) {
  const Header header = read_header(bytes, name);
  return {header.width, header.height, "bmp", 1};
}

namespace {

Palette gray_palette() {
  Palette palette{};
  for (size_t i = 0; i < palette.size(); ++i) palette[i].fill(static_cast<uint8_t>(i));
  return palette;
}

// Decodes colours, or with `numbers` the indices of palettes as gray.
void decode(Bytes bytes, const std::string& name, const Box& box, bool numbers, Image& out) {
  const Header header = read_header(bytes, name);
  const auto width = static_cast<size_t>(header.width), height = static_cast<size_t>(header.height);
  const bool runs = header.compression == kRle8 || header.compression == kRle4;
  const Palette palette = numbers            ? gray_palette()
                          : header.bits <= 8 ? read_palette(bytes, header, name)
                                             : Palette{};
  const std::array<Component, 3> parts = {Component(header.masks[0]), Component(header.masks[1]),
                                          Component(header.masks[2])};
  for (const Component& part : parts)
    check(part.contiguous(), name, ": broken BMP (its colour masks make no sense)");
  const std::vector<uint8_t> indices =
      runs ? RunLengths(bytes, header, name).decode() : std::vector<uint8_t>();
  check(
      runs || (header.pixels <= bytes.size() &&
               header.stride() * (height - 1) + (header.row_bits() + 7) / 8 <= bytes.size() - header.pixels),
      name, ": truncated BMP, the file ends before the image does");
  out.reshape(box.width, box.height);
  const auto bits = static_cast<size_t>(header.bits), bytes_a_pixel = bits / 8;
  for (int y = 0; y < box.height; ++y) {
    const auto line = static_cast<size_t>(box.top + y), stored = header.from_top ? line : height - 1 - line;
    const size_t row = header.pixels + stored * header.stride();
    uint8_t* to = out.row(y);
    for (int k = 0; k < box.width; ++k, to += 3) {
      const auto x = static_cast<size_t>(box.left + k);
      if (bits > 8) {
        const uint32_t pixel = pixel_at(bytes, row + x * bytes_a_pixel, bytes_a_pixel);
        for (size_t c = 0; c < 3; ++c) to[c] = parts[c].of(pixel);
        continue;
      }
      const size_t first = x * bits, shift = 8 - bits - first % 8;
      const size_t index =
          runs ? indices[stored * width + x] : byte_at(bytes, row + first / 8) >> shift & ((1u << bits) - 1);
      std::copy(palette[index].begin(), palette[index].end(), to);
    }
  }
}

}  // namespace

void decode_bmp(Bytes bytes, const std::string& name, const Box& box, Image& out) {
  decode(bytes, name, box, false, out);
}

std::optional<Image> decode_bmp_numbers(Bytes bytes, const std::string& name) {
  const Header header = read_header(bytes, name);
  if (header.bits > 8) return std::nullopt;
  Image out;
  decode(bytes, name, {0, 0, header.width, header.height}, true, out);
  return out;
}

}  // namespace tessera::codec
