// Writes images in the format of the file name's extension.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "io/images/image.h"

namespace tessera {

// True if encode_image supports this name: .png, .jpg, .jpeg or .webp in any case.
bool is_image_name(const std::string& path);

// Encodes 3 channels: lossless PNG and WebP, JPEG at quality 90. Throws on another name, and for WebP on more
// than 16383 pixels a side.
std::vector<std::byte> encode_image(const Image& image, const std::string& path);

// Adds a text before the pixels of a PNG (an iTXt chunk: UTF-8, uncompressed); `key` has 1 to 79 Latin
// letters. Other readers ignore it.
std::vector<std::byte> with_png_text(std::vector<std::byte> png, const std::string& key,
                                     const std::string& value);
// Returns that text of a file; empty if it has no such key or is not a complete PNG.
std::string png_text(std::span<const std::byte> png, const std::string& key);

}  // namespace tessera
