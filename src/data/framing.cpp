#include "data/framing.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"

namespace tessera::data {
namespace {

// A picture of one colour with `image` at a place inside it.
Image paste(const Image& image, Extent size, int left, int top, const std::array<uint8_t, 3>& colour) {
  Image out(size.width, size.height);
  for (size_t i = 0; i < out.pixels.size(); i += 3)
    std::copy(colour.begin(), colour.end(), out.pixels.begin() + static_cast<std::ptrdiff_t>(i));
  for (int y = 0; y < image.height; ++y)
    std::memcpy(out.row(top + y) + 3 * left, image.row(y), 3 * static_cast<size_t>(image.width));
  return out;
}

}  // namespace

Image pad_to_square(const Image& image, const std::array<uint8_t, 3>& colour) {
  check(image.channels == 3, "a picture of ", image.channels, " channels, must have 3");
  const int side = std::max(image.width, image.height);
  return paste(image, {side, side}, (side - image.width) / 2, (side - image.height) / 2, colour);
}

Image fit_into(const Image& image, Extent size, FitRounding rounding) {
  const double across = static_cast<double>(size.width) / image.width,
               down = static_cast<double>(size.height) / image.height;
  const auto rounded = [&](double value, int most) {
    const double whole = rounding == FitRounding::up ? std::ceil(value) : std::nearbyint(value);
    return std::clamp(static_cast<int>(whole), 1, most);
  };
  Extent fitted = size;
  if (across < down)
    fitted.height = rounded(image.height * across, size.height);
  else
    fitted.width = rounded(image.width * down, size.width);
  const Image resized = resize(image, fitted.width, fitted.height, Interpolation::bicubic);
  const int left = size.width - fitted.width, top = size.height - fitted.height;
  return paste(resized, size, left / 2, top / 2, {0, 0, 0});
}

Image shortest_then_centre(const Image& image, int side) {
  const Extent size = resize_short_side({image.height, image.width}, side);
  const Image resized = resize(image, size.width, size.height, Interpolation::bicubic);
  return cut(resized, Box{(size.width - side) / 2, (size.height - side) / 2, side, side});
}

Extent best_size(Extent picture, const std::vector<Extent>& sizes) {
  check(!sizes.empty(), "there is no size to choose from");
  Extent best = sizes.front();
  int64_t most = -1, least_waste = 0;
  for (const Extent& size : sizes) {
    const double scale = std::min(static_cast<double>(size.width) / picture.width,
                                  static_cast<double>(size.height) / picture.height);
    const int64_t shown =
        static_cast<int64_t>(picture.width * scale) * static_cast<int64_t>(picture.height * scale);
    const int64_t useful = std::min(shown, int64_t{picture.width} * picture.height);
    const int64_t waste = int64_t{size.width} * size.height - useful;
    if (useful > most || (useful == most && waste < least_waste))
      most = useful, least_waste = waste, best = size;
  }
  return best;
}

}  // namespace tessera::data
