// Masks as PNG files: a number for each pixel, gray of up to 16 bits or an index into a palette.
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

// The numbers as they are stored: indices of a palette, not its colours; gray of 1, 2 and 4 bits is not spread. Throws
// Error with `name` in front for what is no PNG, is damaged, has more than `max_pixels`, or has colours or alpha
// instead of one number a pixel.
IndexImage decode_index_png(std::span<const std::byte> bytes, const std::string& name,
                            int64_t max_pixels = 178956970);

// A picture of one channel as a PNG with a palette, whose entry i is the colour that viewers show for index i; 1 to
// 256 entries, and no pixel may be without one.
std::vector<std::byte> encode_index_png(const Image& image, std::span<const std::array<uint8_t, 3>> palette);

}  // namespace tessera
