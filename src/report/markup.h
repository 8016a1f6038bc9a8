// Text inside markup, and pictures inside a page.
#pragma once

#include <string>
#include <string_view>

#include "io/images/image.h"

namespace tessera::report {

// Text as it may stand between tags and inside double-quoted attributes, in XML and in HTML alike. Class
// names and paths come from strangers: control characters and bytes that are no UTF-8 become U+FFFD.
std::string escape(std::string_view words);

// "data:image/png;base64,…"; PNG for small pictures and for one channel, JPEG (quality 85) from 128 x 128
// pixels.
std::string data_uri(const Image& image);

// A number for people: at most `digits` significant digits, no trailing zeros, 1.2e-05 where plain form is
// long.
std::string compact(double value, int digits = 4);

}  // namespace tessera::report
