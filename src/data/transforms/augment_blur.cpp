#include "data/transforms/augment_operations.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace tessera::data {
namespace {

// Weights in 24-bit fixed point: `whole` for pixels up to `reach` away, `edge` for the next pixel on each
// side.
struct BoxWeights {
  int reach;
  uint32_t whole, edge;
};

BoxWeights box_weights(float radius) {
  BoxWeights w{};
  w.reach = static_cast<int>(radius);
  w.whole = static_cast<uint32_t>(static_cast<float>(1 << 24) / (radius * 2 + 1));
  w.edge = ((1u << 24) - static_cast<uint32_t>(w.reach * 2 + 1) * w.whole) / 2;
  return w;
}

// Blurs a row of `count` pixels, `step` bytes apart, once, reading from a copy of the row.
void blur_line(uint8_t* line, int count, int step, const BoxWeights& w, std::vector<uint8_t>& copy) {
  copy.resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) copy[static_cast<size_t>(i)] = line[static_cast<ptrdiff_t>(i) * step];
  const auto at = [&](int i) -> uint32_t { return copy[static_cast<size_t>(std::clamp(i, 0, count - 1))]; };
  uint32_t sum = 0;
  for (int i = -w.reach - 1; i < w.reach; ++i) sum += at(i);
  for (int i = 0; i < count; ++i) {
    sum += at(i + w.reach) - at(i - w.reach - 1);
    const uint32_t v = sum * w.whole + (at(i - w.reach - 1) + at(i + w.reach + 1)) * w.edge;
    line[static_cast<ptrdiff_t>(i) * step] = static_cast<uint8_t>((v + (1u << 23)) >> 24);
  }
}

}  // namespace

Image box_blur(const Image& image, double radius, int passes) {
  check(radius >= 0 && radius < 65536, "blur radius is ", radius, ", must be 0 to 65535");
  Image out = image;
  if (radius == 0) return out;
  const BoxWeights weights = box_weights(static_cast<float>(radius));
  const int c = image.channels, row = image.width * c;
  std::vector<uint8_t> copy;
  for (int y = 0; y < image.height; ++y)
    for (int k = 0; k < c; ++k)
      for (int p = 0; p < passes; ++p) blur_line(out.row(y) + k, image.width, c, weights, copy);
  for (int x = 0; x < row; ++x)
    for (int p = 0; p < passes; ++p) blur_line(out.pixels.data() + x, image.height, row, weights, copy);
  return out;
}

Image gaussian_blur(const Image& image, double radius) {
  constexpr int kPasses = 3;
  const float r = static_cast<float>(radius), variance = r * r / kPasses;
  const float length = static_cast<float>(std::sqrt(12.0 * variance + 1.0));
  const float whole = static_cast<float>(std::floor((length - 1.0) / 2.0));
  float part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance);
  part /= 6 * (variance - (whole + 1) * (whole + 1));
  return box_blur(image, whole + part, kPasses);
}

Image smooth(const Image& image) {
  Image out = image;
  const int c = image.channels;
  constexpr float kSide = 1.0f / 13, kMiddle = 5.0f / 13;
  for (int y = 1; y + 1 < image.height; ++y) {
    const uint8_t *above = image.row(y - 1), *here = image.row(y), *below = image.row(y + 1);
    for (int x = c; x < (image.width - 1) * c; ++x) {
      const auto line = [&](const uint8_t* row, float middle) {
        return static_cast<float>(row[x - c]) * kSide + static_cast<float>(row[x]) * middle +
               static_cast<float>(row[x + c]) * kSide;
      };
      float sum = 0.5f;
      sum += line(below, kSide);
      sum += line(here, kMiddle);
      sum += line(above, kSide);
      out.row(y)[x] = static_cast<uint8_t>(std::clamp(sum, 0.0f, 255.0f));
    }
  }
  return out;
}

}  // namespace tessera::data
