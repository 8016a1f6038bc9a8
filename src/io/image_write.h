// Images into files of the kind that the file's name says.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "io/image.h"

namespace tessera {

// Whether encode_image writes files of this name: .png, .jpg, .jpeg and .webp in any case.
bool is_image_name(const std::string& path);

// PNG and WebP without loss, JPEG at quality 90. Fails on another name, and on more than 16383 pixels a side for WebP.
// 3 channels.
std::vector<std::byte> encode_image(const Image& image, const std::string& path);

}  // namespace tessera
