// Text in markup, and images in a page.
#pragma once

#include <string>
#include <string_view>

#include "io/images/image.h"

namespace tessera::report {

// Returns text that is safe between tags and in double-quoted attributes, in XML and HTML. Class names and
// paths are untrusted: control characters and invalid UTF-8 become U+FFFD.
std::string escape(std::string_view words);

// Returns "data:image/png;base64,…"; PNG for small images and for one channel, JPEG (quality 85) from 128 x
// 128 pixels.
std::string data_uri(const Image& image);

// Returns a readable number: at most `digits` significant digits, no trailing zeros, 1.2e-05 if the plain
// form is long.
std::string compact(double value, int digits = 4);

}  // namespace tessera::report
