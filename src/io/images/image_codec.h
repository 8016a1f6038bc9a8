// The functions of each codec for image.cpp. Private to the folder.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/images/image.h"

namespace tessera::codec {

using Bytes = std::span<const std::byte>;

inline uint8_t byte_at(Bytes bytes, size_t i) { return std::to_integer<uint8_t>(bytes[i]); }
inline uint32_t big_endian16(Bytes bytes, size_t i) {
  return uint32_t{byte_at(bytes, i)} << 8 | byte_at(bytes, i + 1);
}
inline uint32_t big_endian32(Bytes bytes, size_t i) {
  return big_endian16(bytes, i) << 16 | big_endian16(bytes, i + 2);
}

// Throws unless 1 <= width * height <= max_pixels.
void check_size(int64_t width, int64_t height, int64_t max_pixels, const std::string& name);

// The orientation in a file's metadata, where Pillow's getexif() finds it: in EXIF, else in a PNG's text that holds
// EXIF, else in XMP (`tiff:Orientation`).
class Orientation {
 public:
  void add_exif(Bytes block);  // the first block counts; it may begin with "Exif"
  void add_xmp(Bytes packet);  // the last packet counts
  // Adds a chunk of kind tEXt, zTXt or iTXt if its key is that of XMP or of ImageMagick's EXIF.
  void add_png_text(std::string_view kind, Bytes content);
  // Returns 1 to 8; 1 if it is missing or invalid.
  int value() const;

 private:
  static std::optional<int> orientation_in_profile(std::string_view digits);
  bool has_exif_ = false;
  std::optional<int> exif_, profile_, xmp_;
};

// Returns a TIFF block with only an orientation.
std::array<uint8_t, 26> exif_block(int orientation);

// Read size and orientation from the headers alone.
ImageInfo jpeg_info(Bytes bytes, const std::string& name);
ImageInfo png_info(Bytes bytes, const std::string& name);
ImageInfo webp_info(Bytes bytes, const std::string& name);
ImageInfo gif_info(Bytes bytes, const std::string& name);
ImageInfo bmp_info(Bytes bytes, const std::string& name);
ImageInfo tiff_info(Bytes bytes, const std::string& name);

// Decode the pixels in `box` (within the image), in the file's own orientation. For JPEG at a scale, the box
// is in unscaled pixels and the result covers every scaled pixel that touches it.
// `damage` receives libjpeg's words if parts of the image are missing or broken.
void decode_jpeg(Bytes bytes, const std::string& name, const Box& box, const DecodeOptions& options,
                 Image& out, std::string* damage = nullptr);
void decode_png(Bytes bytes, const std::string& name, const Box& box, Image& out);
void decode_webp(Bytes bytes, const std::string& name, const Box& box, Image& out);
void decode_gif(Bytes bytes, const std::string& name, const Box& box, Image& out);
void decode_bmp(Bytes bytes, const std::string& name, const Box& box, Image& out);
void decode_tiff(Bytes bytes, const std::string& name, const Box& box, Image& out);
// Decode the one unconverted number of each pixel, as a palette's index, in the file's own orientation. A BMP
// gives gray, or nothing if it has colours; a TIFF gives two channels with the bytes.
std::optional<Image> decode_bmp_numbers(Bytes bytes, const std::string& name);
Image decode_tiff_numbers(Bytes bytes, const std::string& name);
void decode_tiff_bands(Bytes bytes, const std::string& name, int bands, Image& out);

// For tests. `allowed`: the Huffman decoder of jpeg_huffman.h may be used. `taken`: images that it started.
// `left`: images that it then left to libjpeg.
struct HuffmanUse {
  std::atomic<bool> allowed{true};
  std::atomic<int64_t> taken{0}, left{0};
};
HuffmanUse& huffman_use();

}  // namespace tessera::codec
