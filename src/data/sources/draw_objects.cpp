#include "data/sources/annotated_source.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera::data {

// Okabe & Ito's colours; darker ones after the first eight.
std::array<uint8_t, 3> object_colour(int64_t label) {
  static constexpr std::array<std::array<uint8_t, 3>, 8> kColours = {{{230, 159, 0},
                                                                      {86, 180, 233},
                                                                      {0, 158, 115},
                                                                      {240, 228, 66},
                                                                      {0, 114, 178},
                                                                      {213, 94, 0},
                                                                      {204, 121, 167},
                                                                      {255, 255, 255}}};
  std::array<uint8_t, 3> colour = kColours[static_cast<size_t>(label % 8)];
  for (int64_t i = 0; i < label / 8 % 3; ++i)
    for (uint8_t& channel : colour) channel = static_cast<uint8_t>(channel * 2 / 3);
  return colour;
}

Image draw_objects(const Image& image, const std::vector<DrawnObject>& objects) {
  Image out = image;
  const int thick = std::max(1, std::min(image.width, image.height) / 200);
  const auto paint = [&](int x, int y, const std::array<uint8_t, 3>& colour, int share) {
    if (x < 0 || y < 0 || x >= out.width || y >= out.height) return;
    uint8_t* pixel = out.row(y) + 3 * x;
    for (int c = 0; c < 3; ++c)
      pixel[c] = static_cast<uint8_t>((pixel[c] * (4 - share) + colour[static_cast<size_t>(c)] * share) / 4);
  };
  for (const DrawnObject& o : objects) {
    const auto colour = object_colour(o.label);
    if (o.mask && o.mask->width == image.width && o.mask->height == image.height) {
      const std::vector<uint8_t> mask = mask_of_runs(*o.mask);
      for (int y = 0; y < out.height; ++y)
        for (int x = 0; x < out.width; ++x)
          if (mask[static_cast<size_t>(y) * static_cast<size_t>(out.width) + static_cast<size_t>(x)])
            paint(x, y, colour, 2);
    }
    const auto left = static_cast<int>(o.left), top = static_cast<int>(o.top),
               right = static_cast<int>(std::ceil(o.right)) - 1,
               bottom = static_cast<int>(std::ceil(o.bottom)) - 1;
    for (int t = 0; t < thick; ++t) {
      for (int x = left; x <= right; ++x) paint(x, top + t, colour, 4), paint(x, bottom - t, colour, 4);
      for (int y = top; y <= bottom; ++y) paint(left + t, y, colour, 4), paint(right - t, y, colour, 4);
    }
  }
  return out;
}

}  // namespace tessera::data
