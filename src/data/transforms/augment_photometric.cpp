#include "data/transforms/augment_operations.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"

namespace tessera::data {
namespace {

using Table = std::array<uint8_t, 256>;

// Returns value * factor + offset in float32, clipped to 0 … 255 and truncated.
Table scaled(double factor, double offset) {
  Table table;
  for (size_t v = 0; v < table.size(); ++v) {
    const float value = static_cast<float>(v) * static_cast<float>(factor) + static_cast<float>(offset);
    table[v] = static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f));
  }
  return table;
}

void look_up(const Table& table, Image& image, size_t first, size_t step) {
  for (size_t i = first; i < image.pixels.size(); i += step) image.pixels[i] = table[image.pixels[i]];
}

// OpenCV divides by 1 to 255 through multiplication by a reciprocal with twelve fractional bits.
struct Reciprocals {
  std::array<int, 256> saturation{}, hue{};
  Reciprocals() {
    for (size_t i = 1; i < 256; ++i) {
      saturation[i] = static_cast<int>(std::lround((255 << 12) / static_cast<double>(i)));
      hue[i] = static_cast<int>(std::lround((180 << 12) / (6.0 * static_cast<double>(i))));
    }
  }
};

int without_fraction(int value) { return (value + (1 << 11)) >> 12; }  // rounded

}  // namespace

Image to_half_degree_hsv(const Image& image) {
  check(image.channels == 3, "HSV of an image of ", image.channels, " channels, must be 3");
  static const Reciprocals one_over;
  Image out(image.width, image.height);
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    const int r = image.pixels[i], g = image.pixels[i + 1], b = image.pixels[i + 2];
    const int most = std::max({r, g, b}), range = most - std::min({r, g, b});
    uint8_t* hsv = &out.pixels[i];
    const int sixths = most == r ? g - b : most == g ? b - r + 2 * range : r - g + 4 * range;
    const int hue = without_fraction(sixths * one_over.hue[static_cast<size_t>(range)]);
    hsv[0] = static_cast<uint8_t>(hue < 0 ? hue + 180 : hue);
    hsv[1] = static_cast<uint8_t>(without_fraction(range * one_over.saturation[static_cast<size_t>(most)]));
    hsv[2] = static_cast<uint8_t>(most);
  }
  return out;
}

Image from_half_degree_hsv(const Image& image) {
  check(image.channels == 3, "an image of ", image.channels, " channels is no HSV, must have 3");
  // OpenCV processes a row in groups of 32 pixels and truncates their values; it rounds those of the
  // remainder.
  const int grouped = image.width / 32 * 32;
  Image out(image.width, image.height);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) {
      const uint8_t* hsv = image.row(y) + 3 * x;
      const float sixths = static_cast<float>(hsv[0]) * (6.0F / 180),
                  s = static_cast<float>(hsv[1]) * (1.0F / 255),
                  v = static_cast<float>(hsv[2]) * (1.0F / 255), whole = std::floor(sixths),
                  within = sixths - whole;
      const auto level = [&](float share) {
        const float value = share * 255.0F;
        return static_cast<uint8_t>(x < grouped ? value : std::nearbyint(value));
      };
      const uint8_t full = level(v), p = level(v * (1 - s)), q = level(v * (1 - s * within)),
                    t = level(v * (1 - s * (1 - within)));
      const std::array<std::array<uint8_t, 3>, 6> sectors = {
          {{full, t, p}, {q, full, p}, {p, full, t}, {p, q, full}, {t, p, full}, {full, p, q}}};
      std::copy_n(sectors[static_cast<size_t>(whole) % 6].begin(), 3, out.row(y) + 3 * x);
    }
  return out;
}

void distort_photometrically(const PhotometricConfig& config, Draws& draws, Image& image) {
  check(image.channels == 3, "photometric distortion of ", image.channels, " channels, must be 3");
  const auto yes = [&] { return draws.integer(0, 1) == 1; };
  const auto contrast = [&] {
    if (yes()) look_up(scaled(draws.uniform(config.contrast[0], config.contrast[1]), 0), image, 0, 1);
  };
  if (yes()) look_up(scaled(1, draws.uniform(-config.brightness, config.brightness)), image, 0, 1);
  const bool contrast_first = yes();
  if (contrast_first) contrast();
  if (yes()) {
    image = to_half_degree_hsv(image);
    look_up(scaled(draws.uniform(config.saturation[0], config.saturation[1]), 0), image, 1, 3);
    image = from_half_degree_hsv(image);
  }
  if (yes()) {
    image = to_half_degree_hsv(image);
    const auto shift = static_cast<int>(draws.integer(-config.hue, config.hue - 1));
    for (size_t i = 0; i < image.pixels.size(); i += 3)
      image.pixels[i] = static_cast<uint8_t>((image.pixels[i] + shift + 180) % 180);
    image = from_half_degree_hsv(image);
  }
  if (!contrast_first) contrast();
}

}  // namespace tessera::data
