// Images in memory, and their codecs. Pixels equal Pillow's ImageOps.exif_transpose(Image.open(f)).convert("RGB"),
// except for gray of more than 8 bits, which gives its upper 8 bits, as in colour; Pillow clips it at 255.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera {

// uint8, [height, width, channels], rows without padding.
struct Image {
  int width = 0, height = 0, channels = 3;
  std::vector<uint8_t> pixels;

  Image() = default;
  Image(int w, int h, int c = 3)
      : width(w),
        height(h),
        channels(c),
        pixels(static_cast<size_t>(w) * static_cast<size_t>(h) * static_cast<size_t>(c)) {}
  // Changes the size in the same memory; the pixels are then undefined.
  void reshape(int w, int h, int c = 3) {
    width = w, height = h, channels = c;
    pixels.resize(static_cast<size_t>(w) * static_cast<size_t>(h) * static_cast<size_t>(c));
  }
  uint8_t* row(int y) {
    return pixels.data() + static_cast<size_t>(y) * static_cast<size_t>(width * channels);
  }
  const uint8_t* row(int y) const {
    return pixels.data() + static_cast<size_t>(y) * static_cast<size_t>(width * channels);
  }
};

struct Box {
  int left = 0, top = 0, width = 0, height = 0;
  bool operator==(const Box&) const = default;
};

struct DecodeOptions {
  int64_t max_pixels = 178956970;  // Pillow's limit against decompression bombs; checked before allocation
  bool apply_exif = true;          // orient the image by its EXIF orientation, as viewers show it
  int scale =
      1;  // JPEG only, others ignore it: decode at 1/1, 1/2, 1/4 or 1/8 in the DCT (`decode = "fast"`)
};

// The size without decoding, in the file's own orientation.
struct ImageInfo {
  int width = 0, height = 0;
  std::string format;   // "jpeg", "png", "webp", "gif", "bmp", "tiff"
  int orientation = 1;  // EXIF, 1 to 8; from 5 on, applying it swaps width and height
};

// Returns the orientation that decoding applies; for TIFF even without `apply_exif`, as in Pillow.
int applied_orientation(const ImageInfo& info, const DecodeOptions& options);

// True if a file is an image, by its first bytes; kImageHeadBytes of them are enough.
constexpr size_t kImageHeadBytes = 32;
bool is_image(std::span<const std::byte> head);

// Files with several images (GIF, TIFF, animations): the first one.
// All throw Error that starts with `name` (a file or a sample): empty, not an image, truncated, too many
// pixels, …. The format is detected from the bytes, never from the name.
ImageInfo image_info(std::span<const std::byte> bytes, const std::string& name);
Image decode_image(std::span<const std::byte> bytes, const std::string& name,
                   const DecodeOptions& options = {});

// The same with the default options. Sets `damage` to the cause if parts of a JPEG are missing or broken, such as rows of a
// file that was cut and closed again: libjpeg, and so every program on it, replaces them by gray. Else sets it to "".
// Other formats are whole or throw.
Image decode_image(std::span<const std::byte> bytes, const std::string& name, std::string& damage);

// Equals decode_image followed by a crop to `box` (in pixels of the unscaled image, oriented if the options
// set it). Decodes only the needed part and one more iMCU on each side. At scale s the result covers the
// scaled pixels from floor(left / s) to ceil((left + width) / s), and likewise vertically (before orienting).
Image decode_image_crop(std::span<const std::byte> bytes, const std::string& name, const Box& box,
                        const DecodeOptions& options = {});
// The same into an image with reused memory.
void decode_image_crop(std::span<const std::byte> bytes, const std::string& name, const Box& box,
                       const DecodeOptions& options, Image& out);

// Decodes a TIFF with `bands` numbers per pixel: [height, width, bands]; of longer numbers the upper 8 bits.
// Throws if the file is not a TIFF or has another number of bands.
Image decode_bands(std::span<const std::byte> bytes, const std::string& name, int bands,
                   const DecodeOptions& options = {});

// Returns a copy of the part of an image in a box.
Image cut(const Image& image, const Box& box);
// Returns the image rotated and mirrored by an EXIF orientation (1 to 8).
Image orient(const Image& image, int orientation);
// Returns the orientation that undoes this one.
constexpr int inverse_orientation(int orientation) {
  return orientation == 6 ? 8 : orientation == 8 ? 6 : orientation;
}

// Encode 1 or 3 channels; JPEG in 4:2:0. They store an EXIF orientation other than 1 in the file's metadata.
std::vector<std::byte> encode_png(const Image& image, int orientation = 1);
std::vector<std::byte> encode_jpeg(const Image& image, int quality = 90, int orientation = 1);

// True if encode_image supports this name: .png, .jpg, .jpeg or .webp in any case.
bool is_image_name(const std::string& path);

// Encodes 3 channels: lossless PNG and WebP, JPEG at quality 90. Throws on another name, and for WebP on
// sides above 16383 pixels.
std::vector<std::byte> encode_image(const Image& image, const std::string& path);

// Adds a text before the pixels of a PNG (an iTXt chunk: UTF-8, uncompressed); `key` has 1 to 79 Latin
// letters. Other readers ignore it.
std::vector<std::byte> with_png_text(std::vector<std::byte> png, const std::string& key,
                                     const std::string& value);
// Returns that text of a file; empty if it has no such key or is not a complete PNG.
std::string png_text(std::span<const std::byte> png, const std::string& key);

}  // namespace tessera
