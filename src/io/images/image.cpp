#include "io/images/image.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "io/images/image_codec.h"

namespace tessera {

using codec::Bytes;

namespace {

enum class Format { jpeg, png, webp, gif, bmp, tiff };

bool starts_with(Bytes bytes, std::string_view magic, size_t at = 0) {
  return bytes.size() >= at + magic.size() && std::memcmp(bytes.data() + at, magic.data(), magic.size()) == 0;
}

struct Stranger {
  std::string_view magic;
  size_t at;
  const char* name;
};

// Files that often have an image's extension, or are next to images.
constexpr Stranger kStrangers[] = {{"ftypavif", 4, "an AVIF"},
                                   {"ftyphei", 4, "an HEIC"},
                                   {"ftyphev", 4, "an HEIC"},
                                   {"ftypmif1", 4, "an HEIC"},
                                   {"ftypmsf1", 4, "an HEIC"},
                                   {"ftypcrx", 4, "a camera's raw file"},
                                   {{"CR\x02\0", 4}, 8, "a camera's raw file"},
                                   {"FUJIFILMCCD-RAW", 0, "a camera's raw file"},
                                   {"ftyp", 4, "a video"},
                                   {{"\x1a\x45\xdf\xa3", 4}, 0, "a video"},
                                   {"AVI ", 8, "a video"},
                                   {"%PDF", 0, "a PDF"},
                                   {"DICM", 128, "a DICOM file"},
                                   {"jP  ", 4, "a JPEG 2000 file"},
                                   {"\xff\x0a", 0, "a JPEG XL file"},
                                   {"JXL ", 4, "a JPEG XL file"},
                                   {"8BPS", 0, "a Photoshop file"},
                                   {"\x76\x2f\x31\x01", 0, "an OpenEXR file"},
                                   {{"\0\0\1\0", 4}, 0, "an icon"},
                                   {"PK\x03\x04", 0, "a zip archive"},
                                   {"\x1f\x8b", 0, "gzipped"},
                                   {"<!DOCTYPE", 0, "a web page"},
                                   {"<html", 0, "a web page"},
                                   {"<svg", 0, "an SVG drawing"},
                                   {"version https://git-lfs", 0, "a pointer of Git LFS (git lfs pull)"}};

// True for Netpbm's formats: P and a digit from 1 to 6, then a blank.
bool is_netpbm(Bytes bytes) {
  if (!starts_with(bytes, "P") || bytes.size() < 3) return false;
  const int digit = codec::byte_at(bytes, 1), blank = codec::byte_at(bytes, 2);
  return digit >= '1' && digit <= '6' && (blank == ' ' || blank == '\n' || blank == '\r' || blank == '\t');
}

// True for XML with a drawing among its first elements.
bool is_svg(Bytes bytes) {
  constexpr size_t kHead = 4096;
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kHead));
  return head.starts_with("<?xml") && head.find("<svg") != std::string_view::npos;
}

// Returns the name of a foreign file type, for the error message; null if it is unknown.
const char* known_stranger(Bytes bytes) {
  for (const Stranger& one : kStrangers)
    if (starts_with(bytes, one.magic, one.at)) return one.name;
  if (is_netpbm(bytes)) return "a Netpbm file";
  return is_svg(bytes) ? "an SVG drawing" : nullptr;
}

// Text may also begin with these two letters, so the header's length must be valid too.
bool is_bmp(Bytes bytes) {
  if (!starts_with(bytes, "BM") || bytes.size() < 18) return false;
  const int size = codec::byte_at(bytes, 14);
  return starts_with(bytes, std::string_view("\0\0\0", 3), 15) &&
         (size == 12 || size == 40 || size == 52 || size == 56 || size == 64 || size == 108 || size == 124);
}

bool is_tiff(Bytes bytes) {
  using namespace std::string_view_literals;
  if (starts_with(bytes, "CR\x02\0"sv, 8)) return false;  // a camera's raw file
  return starts_with(bytes, "II*\0"sv) || starts_with(bytes, "MM\0*"sv) || starts_with(bytes, "II+\0"sv) ||
         starts_with(bytes, "MM\0+"sv);
}

std::optional<Format> format_told(Bytes bytes) {
  if (starts_with(bytes, "\xff\xd8\xff")) return Format::jpeg;
  if (starts_with(bytes, "\x89PNG\r\n\x1a\n")) return Format::png;
  if (starts_with(bytes, "RIFF") && starts_with(bytes, "WEBP", 8)) return Format::webp;
  if (starts_with(bytes, "GIF87a") || starts_with(bytes, "GIF89a")) return Format::gif;
  if (is_bmp(bytes)) return Format::bmp;
  if (is_tiff(bytes)) return Format::tiff;
  return std::nullopt;
}

constexpr const char* kMustBe = "must be a JPEG, PNG, WebP, GIF, BMP or TIFF image";

Format format_of(Bytes bytes, const std::string& name) {
  check(!bytes.empty(), name, ": the file is empty, ", kMustBe);
  if (const auto format = format_told(bytes)) return *format;
  if (const char* stranger = known_stranger(bytes)) fail(name, ": is ", stranger, ", ", kMustBe);
  fail(name, ": not an image (", kMustBe, ")");
}

ImageInfo info_of(Bytes bytes, const std::string& name, Format format) {
  switch (format) {
    case Format::jpeg:
      return codec::jpeg_info(bytes, name);
    case Format::png:
      return codec::png_info(bytes, name);
    case Format::webp:
      return codec::webp_info(bytes, name);
    case Format::gif:
      return codec::gif_info(bytes, name);
    case Format::bmp:
      return codec::bmp_info(bytes, name);
    default:
      return codec::tiff_info(bytes, name);
  }
}

// Converts a box of the oriented image to the file's own orientation (width and height are the file's).
Box unoriented(const Box& box, int orientation, int width, int height) {
  Box b = box;
  if (orientation >= 5) {
    std::swap(b.left, b.top);
    std::swap(b.width, b.height);
  }
  const bool mirror_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirror_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  if (mirror_x) b.left = width - b.left - b.width;
  if (mirror_y) b.top = height - b.top - b.height;
  return b;
}

void check_box(const Box& box, int width, int height, const std::string& name) {
  check(box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0 && box.width <= width - box.left &&
            box.height <= height - box.top,
        name, ": the crop ", box.width, "x", box.height, "+", box.left, "+", box.top, " must be within ",
        width, "x", height);
}

// Decodes the box, or the whole image if it is null.
void decode(Bytes bytes, const std::string& name, const Box* wanted, const DecodeOptions& options, Image& out,
            std::string* damage = nullptr) {
  const int s = options.scale;
  check(s == 1 || s == 2 || s == 4 || s == 8, "decode scale is ", s, ", must be 1, 2, 4 or 8");
  const Format format = format_of(bytes, name);
  const ImageInfo info = info_of(bytes, name, format);
  codec::check_size(info.width, info.height, options.max_pixels, name);
  const int orientation = applied_orientation(info, options);
  const bool swapped = orientation >= 5;
  const int width = swapped ? info.height : info.width, height = swapped ? info.width : info.height;
  if (wanted) check_box(*wanted, width, height, name);
  const Box box =
      unoriented(wanted ? *wanted : Box{0, 0, width, height}, orientation, info.width, info.height);
  if (format == Format::jpeg) codec::decode_jpeg(bytes, name, box, options, out, damage);
  if (format == Format::png) codec::decode_png(bytes, name, box, out);
  if (format == Format::webp) codec::decode_webp(bytes, name, box, out);
  if (format == Format::gif) codec::decode_gif(bytes, name, box, out);
  if (format == Format::bmp) codec::decode_bmp(bytes, name, box, out);
  if (format == Format::tiff) codec::decode_tiff(bytes, name, box, out);
  if (orientation != 1) out = orient(out, orientation);
}

}  // namespace

namespace codec {

void check_size(int64_t width, int64_t height, int64_t max_pixels, const std::string& name) {
  check(width > 0 && height > 0, name, ": the image has no pixels (", width, "x", height, ")");
  check(width <= max_pixels / height, name, ": ", width, "x", height, " are too many pixels, at most ",
        max_pixels, " are allowed");
}

std::array<uint8_t, 26> exif_block(int orientation) {
  // Little-endian; one directory with one entry: tag 0x0112, one 16-bit number; no further directory.
  return {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 0x01, 3, 0, 1, 0, 0, 0, static_cast<uint8_t>(orientation),
          0,   0,   0,  0, 0, 0, 0};
}

}  // namespace codec

Image cut(const Image& image, const Box& box) {
  check_box(box, image.width, image.height, "image");
  Image out(box.width, box.height, image.channels);
  const size_t row_bytes = static_cast<size_t>(box.width) * static_cast<size_t>(image.channels);
  for (int y = 0; y < box.height; ++y)
    std::memcpy(out.row(y), image.row(box.top + y) + static_cast<ptrdiff_t>(box.left) * image.channels,
                row_bytes);
  return out;
}

Image orient(const Image& image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool swapped = orientation >= 5;
  Image out(swapped ? image.height : image.width, swapped ? image.width : image.height, image.channels);
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x) {
      const Box from = unoriented({x, y, 1, 1}, orientation, image.width, image.height);
      const uint8_t* pixel = image.row(from.top) + static_cast<ptrdiff_t>(from.left) * image.channels;
      std::memcpy(out.row(y) + static_cast<ptrdiff_t>(x) * image.channels, pixel,
                  static_cast<size_t>(image.channels));
    }
  }
  return out;
}

int applied_orientation(const ImageInfo& info, const DecodeOptions& options) {
  return options.apply_exif || info.format == "tiff" ? info.orientation : 1;
}

bool is_image(Bytes head) { return format_told(head).has_value(); }

ImageInfo image_info(Bytes bytes, const std::string& name) {
  return info_of(bytes, name, format_of(bytes, name));
}

Image decode_image(Bytes bytes, const std::string& name, const DecodeOptions& options) {
  Image out;
  decode(bytes, name, nullptr, options, out);
  return out;
}

Image decode_image(Bytes bytes, const std::string& name, std::string& damage) {
  Image out;
  damage.clear();
  decode(bytes, name, nullptr, {}, out, &damage);
  return out;
}

Image decode_bands(Bytes bytes, const std::string& name, int bands, const DecodeOptions& options) {
  check(format_of(bytes, name) == Format::tiff, name, ": is not a TIFF, the only format with ", bands,
        " channels");
  const ImageInfo info = codec::tiff_info(bytes, name);
  codec::check_size(info.width, info.height, options.max_pixels, name);
  Image out;
  codec::decode_tiff_bands(bytes, name, bands, out);
  return out;
}

void decode_image_crop(Bytes bytes, const std::string& name, const Box& box, const DecodeOptions& options,
                       Image& out) {
  decode(bytes, name, &box, options, out);
}

Image decode_image_crop(Bytes bytes, const std::string& name, const Box& box, const DecodeOptions& options) {
  Image out;
  decode(bytes, name, &box, options, out);
  return out;
}

}  // namespace tessera
