// Images into files of the kind that the file's name says.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "io/images/image.h"

namespace tessera {

// Whether encode_image writes files of this name: .png, .jpg, .jpeg and .webp in any case.
bool is_image_name(const std::string& path);

// PNG and WebP without loss, JPEG at quality 90. Fails on another name, and on more than 16383 pixels a side for WebP.
// 3 channels.
std::vector<std::byte> encode_image(const Image& image, const std::string& path);

// A PNG with a text of its own in front of the pixels (a chunk iTXt: UTF-8, not compressed); `key` has 1 to 79 Latin
// letters. Other readers pass it over.
std::vector<std::byte> with_png_text(std::vector<std::byte> png, const std::string& key,
                                     const std::string& value);
// That text of a file; empty where it has none of the key, or is no whole PNG.
std::string png_text(std::span<const std::byte> png, const std::string& key);

}  // namespace tessera
