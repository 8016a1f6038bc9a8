#include "data/transforms/framing.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"

namespace tessera::data {
namespace {

// Returns an image of one colour with `image` pasted at (left, top).
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
  check(image.channels == 3, "an image of ", image.channels, " channels, must have 3");
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

namespace {

// The inputs of one output pixel along an axis.
struct Taps {
  int first = 0;
  std::vector<double> weights;
  std::vector<int> whole;  // times 2^bits
};

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

struct Axis {
  std::vector<Taps> taps;
  int bits = 0;

  uint8_t sum(size_t place, const uint8_t* from, size_t step) const {
    const Taps& own = taps[place];
    int total = 1 << (bits - 1);
    for (size_t k = 0; k < own.whole.size(); ++k)
      total += own.whole[k] * from[(static_cast<size_t>(own.first) + k) * step];
    return static_cast<uint8_t>(std::clamp(total >> bits, 0, 255));
  }
};

Axis axis_of(int from, int to) {
  const double scale = static_cast<double>(from) / to, wide = std::max(scale, 1.0), support = 2 * wide;
  Axis axis;
  double largest = 0;
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    Taps taps{std::max(static_cast<int>(centre - support + 0.5), 0), {}, {}};
    const int last = std::min(static_cast<int>(centre + support + 0.5), from);
    double sum = 0;
    for (int j = taps.first; j < last; ++j) {
      taps.weights.push_back(cubic((j - centre + 0.5) / wide));
      sum += taps.weights.back();
    }
    for (double& weight : taps.weights) weight /= sum, largest = std::max(largest, weight);
    axis.taps.push_back(std::move(taps));
  }
  // As many bits as the largest weight leaves in 16.
  while (axis.bits < 22 && static_cast<int>(0.5 + largest * (1 << (axis.bits + 1))) < (1 << 15)) ++axis.bits;
  for (Taps& taps : axis.taps)
    for (const double weight : taps.weights)
      taps.whole.push_back(static_cast<int>(weight * (1 << axis.bits) + (weight < 0 ? -0.5 : 0.5)));
  return axis;
}

}  // namespace

Image resize_by_short_weights(const Image& image, int width, int height) {
  check(image.channels == 3 && image.width > 0 && image.height > 0 && width > 0 && height > 0, "an image of ",
        image.width, "x", image.height, " and ", image.channels, " channels cannot become ", width, "x",
        height);
  Image across = image;
  if (width != image.width) {
    const Axis axis = axis_of(image.width, width);
    across = Image(width, image.height);
    for (int y = 0; y < image.height; ++y)
      for (size_t i = 0; i < 3 * static_cast<size_t>(width); ++i)
        across.row(y)[i] = axis.sum(i / 3, image.row(y) + i % 3, 3);
  }
  if (height == image.height) return across;
  const Axis axis = axis_of(image.height, height);
  const size_t stride = 3 * static_cast<size_t>(width);
  Image out(width, height);
  for (int y = 0; y < height; ++y)
    for (size_t i = 0; i < stride; ++i)
      out.row(y)[i] = axis.sum(static_cast<size_t>(y), across.row(0) + i, stride);
  return out;
}

Image shortest_then_centre(const Image& image, int side) {
  const Extent size = resize_short_side({image.height, image.width}, side);
  const Image resized = resize_by_short_weights(image, size.width, size.height);
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
