#include "data/transforms/augment_operations.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace tessera::data {
namespace {

using Table = std::array<uint8_t, 256>;

void check_rgb(const Image& image) {
  check(image.channels == 3, "colours of an image of ", image.channels, " channels, must be 3");
}

uint8_t to_byte(int v) { return static_cast<uint8_t>(std::clamp(v, 0, 255)); }

// Maps each value by its channel's table.
void look_up(Image& image, const std::array<Table, 3>& tables) {
  for (size_t i = 0; i < image.pixels.size(); i += 3)
    for (size_t c = 0; c < 3; ++c) image.pixels[i + c] = tables[c][image.pixels[i + c]];
}

template <class Function>
void map_values(Image& image, Function&& function) {
  check_rgb(image);
  Table table;
  for (int v = 0; v < 256; ++v) table[static_cast<size_t>(v)] = to_byte(function(v));
  look_up(image, {table, table, table});
}

std::array<std::array<int64_t, 256>, 3> histograms(const Image& image) {
  std::array<std::array<int64_t, 256>, 3> counts{};
  for (size_t i = 0; i < image.pixels.size(); i += 3)
    for (size_t c = 0; c < 3; ++c) ++counts[c][image.pixels[i + c]];
  return counts;
}

Table identity() {
  Table table;
  for (size_t v = 0; v < 256; ++v) table[v] = static_cast<uint8_t>(v);
  return table;
}

uint8_t luma_of(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

uint8_t blended(int degenerate, int value, float factor) {
  const float v = static_cast<float>(degenerate) + factor * static_cast<float>(value - degenerate);
  return v <= 0 ? uint8_t{0} : v >= 255 ? uint8_t{255} : static_cast<uint8_t>(v);
}

void blend_with_gray(Image& image, int gray, double factor) {
  const float f = static_cast<float>(factor);
  map_values(image, [&](int v) { return blended(gray, v, f); });
}

}  // namespace

Image luma(const Image& image) {
  check_rgb(image);
  Image out(image.width, image.height, 1);
  for (size_t i = 0; i < out.pixels.size(); ++i) out.pixels[i] = luma_of(&image.pixels[3 * i]);
  return out;
}

void blend(Image& image, const Image& degenerate, double factor) {
  check(image.pixels.size() == degenerate.pixels.size(), "images of different sizes cannot be blended");
  const float f = static_cast<float>(factor);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = blended(degenerate.pixels[i], image.pixels[i], f);
}

void adjust_brightness(Image& image, double factor) { blend_with_gray(image, 0, factor); }

void adjust_contrast(Image& image, double factor) {
  check_rgb(image);
  int64_t sum = 0;
  for (size_t i = 0; i < image.pixels.size(); i += 3) sum += luma_of(&image.pixels[i]);
  const double mean = static_cast<double>(sum) / static_cast<double>(image.pixels.size() / 3);
  blend_with_gray(image, static_cast<int>(mean + 0.5), factor);
}

void adjust_saturation(Image& image, double factor) {
  check_rgb(image);
  const float f = static_cast<float>(factor);
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    const int gray = luma_of(&image.pixels[i]);
    for (size_t c = 0; c < 3; ++c) image.pixels[i + c] = blended(gray, image.pixels[i + c], f);
  }
}

void adjust_sharpness(Image& image, double factor) {
  check_rgb(image);
  blend(image, smooth(image), factor);
}

void adjust_hue(Image& image, double shift) {
  check(shift >= -0.5 && shift <= 0.5, "hue shift is ", shift, ", must be -0.5 to 0.5");
  Image hsv = to_hsv(image);
  const auto shifted = static_cast<uint8_t>(static_cast<int>(shift * 255));
  for (size_t i = 0; i < hsv.pixels.size(); i += 3)
    hsv.pixels[i] = static_cast<uint8_t>(hsv.pixels[i] + shifted);
  image = from_hsv(hsv);
}

void adjust_gamma(Image& image, double gamma) {
  check(gamma >= 0, "gamma is ", gamma, ", must not be negative");
  map_values(image, [&](int v) { return static_cast<int>((255 + 1 - 1e-3) * std::pow(v / 255.0, gamma)); });
}

void grayscale(Image& image) {
  check_rgb(image);
  for (size_t i = 0; i < image.pixels.size(); i += 3)
    image.pixels[i] = image.pixels[i + 1] = image.pixels[i + 2] = luma_of(&image.pixels[i]);
}

void invert(Image& image) {
  for (uint8_t& v : image.pixels) v = static_cast<uint8_t>(255 - v);
}

void solarize(Image& image, int threshold) {
  map_values(image, [&](int v) { return v < threshold ? v : 255 - v; });
}

void solarize_add(Image& image, int amount) {
  map_values(image, [&](int v) { return v < 128 ? v + amount : v; });
}

void posterize(Image& image, int bits) {
  check(bits >= 1 && bits <= 8, "posterize keeps ", bits, " bits, must be 1 to 8");
  map_values(image, [&](int v) { return v & (0xff << (8 - bits)); });
}

void autocontrast(Image& image) {
  check_rgb(image);
  const auto counts = histograms(image);
  std::array<Table, 3> tables;
  for (size_t c = 0; c < 3; ++c) {
    int low = 0, high = 255;
    while (low < 255 && !counts[c][static_cast<size_t>(low)]) ++low;
    while (high > 0 && !counts[c][static_cast<size_t>(high)]) --high;
    tables[c] = identity();
    if (high <= low) continue;
    const double scale = 255.0 / (high - low), offset = -low * scale;
    for (int v = 0; v < 256; ++v)
      tables[c][static_cast<size_t>(v)] = to_byte(static_cast<int>(v * scale + offset));
  }
  look_up(image, tables);
}

void equalize(Image& image) {
  check_rgb(image);
  const auto counts = histograms(image);
  std::array<Table, 3> tables;
  for (size_t c = 0; c < 3; ++c) {
    int64_t total = 0, last = 0;
    for (const int64_t count : counts[c])
      if (count) total += count, last = count;
    const int64_t step = (total - last) / 255;  // 0 also if the channel has only one value
    tables[c] = identity();
    if (!step) continue;
    int64_t n = step / 2;
    for (size_t v = 0; v < 256; ++v) {
      tables[c][v] = to_byte(static_cast<int>(n / step));
      n += counts[c][v];
    }
  }
  look_up(image, tables);
}

Image to_hsv(const Image& image) {
  check_rgb(image);
  Image out(image.width, image.height);
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    const uint8_t r = image.pixels[i], g = image.pixels[i + 1], b = image.pixels[i + 2];
    const uint8_t most = std::max({r, g, b}), least = std::min({r, g, b});
    uint8_t* hsv = &out.pixels[i];
    hsv[2] = most;
    if (most == least) {
      hsv[0] = hsv[1] = 0;
      continue;
    }
    const float range = static_cast<float>(most - least), saturation = range / static_cast<float>(most);
    const float rc = static_cast<float>(most - r) / range, gc = static_cast<float>(most - g) / range;
    const float bc = static_cast<float>(most - b) / range;
    float hue = 0;  // in sixths of the circle
    if (r == most)
      hue = bc - gc;
    else if (g == most)
      hue = static_cast<float>(2.0 + rc - bc);
    else
      hue = static_cast<float>(4.0 + gc - rc);
    hue = static_cast<float>(std::fmod(hue / 6.0 + 1.0, 1.0));
    hsv[0] = to_byte(static_cast<int>(hue * 255.0));
    hsv[1] = to_byte(static_cast<int>(saturation * 255.0));
  }
  return out;
}

Image from_hsv(const Image& image) {
  check_rgb(image);
  Image out(image.width, image.height);
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    const uint8_t h = image.pixels[i], s = image.pixels[i + 1], v = image.pixels[i + 2];
    uint8_t* rgb = &out.pixels[i];
    if (s == 0) {
      rgb[0] = rgb[1] = rgb[2] = v;
      continue;
    }
    const float sixths = static_cast<float>(h * 6.0 / 255.0);
    const int sector = static_cast<int>(std::floor(sixths));
    const float within = static_cast<float>(h * 6.0 / 255.0 - static_cast<float>(sector));
    const float saturation = static_cast<float>(s / 255.0);
    const auto level = [&](double share) { return to_byte(static_cast<int>(std::round(v * (1.0 - share)))); };
    const uint8_t p = level(saturation), q = level(saturation * within),
                  t = level(saturation * (1.0 - within));
    const std::array<std::array<uint8_t, 3>, 6> sectors = {
        {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
    const auto& colour = sectors[static_cast<size_t>(sector % 6)];
    std::copy(colour.begin(), colour.end(), rgb);
  }
  return out;
}

}  // namespace tessera::data
