// Masks as files: one number per pixel, gray of up to 16 bits or a palette index; written as PNG.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/images/image.h"

namespace tessera {

struct IndexImage {
  int width = 0, height = 0;
  std::vector<uint16_t> values;  // [height, width]
};

// Returns the numbers as stored: palette indices, not colours; gray of 1, 2 and 4 bits is not scaled. If red, green and
// blue are equal, each is the number; alpha is ignored. An EXIF orientation of the file is applied. Throws Error that
// starts with `name`: not a PNG, damaged, more than `max_pixels`, or colours instead of one number per pixel.
IndexImage decode_index_png(std::span<const std::byte> bytes, const std::string& name,
                            int64_t max_pixels = 178956970);

// Does the same for PNG, TIFF and BMP; WebP and GIF must be gray. JPEG is refused, since its compression changes numbers.
IndexImage decode_index_image(std::span<const std::byte> bytes, const std::string& name,
                              int64_t max_pixels = 178956970);

// Encodes a one-channel image as a PNG with a palette; viewers show entry i for index i. The palette has 1 to
// 256 entries and must cover every pixel.
std::vector<std::byte> encode_index_png(const Image& image, std::span<const std::array<uint8_t, 3>> palette);

}  // namespace tessera
