// Images that are decoded although parts of them are missing.
#pragma once

#include <span>
#include <string>

#include "io/images/image.h"

namespace tessera {

// As decode_image with its default options. Sets `damage` to the cause if parts of a JPEG are missing or broken, such as rows
// of a file that was cut and closed again: libjpeg, and so every program on it, replaces them by gray. Else sets it to
// "". Other formats are whole or throw.
Image decode_image(std::span<const std::byte> bytes, const std::string& name, std::string& damage);

}  // namespace tessera
