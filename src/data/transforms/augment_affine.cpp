#include "data/transforms/augment_operations.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>

#include "core/error.h"

namespace tessera::data {
namespace {

// A sampling position: the pixel up and left of it, and the offset from that pixel.
struct Place {
  int x, y;
  double dx, dy;
};

Place place_of(double x, double y) {
  x -= 0.5, y -= 0.5;
  const double left = std::floor(x), top = std::floor(y);
  return {static_cast<int>(left), static_cast<int>(top), x - left, y - top};
}

// Returns channel c of pixel x of a row; edge pixels repeat.
int clipped(const Image& image, const uint8_t* row, int x, int c) {
  return row[3 * std::clamp(x, 0, image.width - 1) + c];
}

double mix(double a, double b, double share) { return a + (b - a) * share; }

void bilinear(const Image& image, const Place& at, uint8_t* out) {
  const uint8_t* first = image.row(std::clamp(at.y, 0, image.height - 1));
  const bool has_second = at.y + 1 >= 0 && at.y + 1 < image.height;
  const uint8_t* second = has_second ? image.row(at.y + 1) : first;
  for (int c = 0; c < 3; ++c) {
    const double above = mix(clipped(image, first, at.x, c), clipped(image, first, at.x + 1, c), at.dx);
    const double below = mix(clipped(image, second, at.x, c), clipped(image, second, at.x + 1, c), at.dx);
    out[c] = static_cast<uint8_t>(mix(above, has_second ? below : above, at.dy));
  }
}

double cubic(double v1, double v2, double v3, double v4, double d) {
  const double p2 = -v1 + v3, p3 = 2 * (v1 - v2) + v3 - v4, p4 = -v1 + v2 - v3 + v4;
  return v2 + d * (p2 + d * (p3 + d * p4));
}

void bicubic(const Image& image, const Place& at, uint8_t* out) {
  for (int c = 0; c < 3; ++c) {
    double lines[4];
    for (int i = 0; i < 4; ++i) {
      const int y = at.y - 1 + i;
      if (i > 0 && (y < 0 || y >= image.height)) {  // a missing line repeats the previous one
        lines[i] = lines[i - 1];
        continue;
      }
      const uint8_t* row = image.row(std::clamp(y, 0, image.height - 1));
      lines[i] = cubic(clipped(image, row, at.x - 1, c), clipped(image, row, at.x, c),
                       clipped(image, row, at.x + 1, c), clipped(image, row, at.x + 2, c), at.dx);
    }
    const double v = cubic(lines[0], lines[1], lines[2], lines[3], at.dy);
    out[c] = v <= 0 ? uint8_t{0} : v >= 255 ? uint8_t{255} : static_cast<uint8_t>(v);
  }
}

// Samples in 16.16 fixed point, as Pillow does.
void nearest(const Image& image, const std::array<double, 6>& m, Image& out) {
  const auto fixed = [](double v) { return static_cast<int64_t>(std::floor(v * 65536.0 + 0.5)); };
  const int64_t a = fixed(m[0]), b = fixed(m[1]), d = fixed(m[3]), e = fixed(m[4]);
  const int64_t c = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), f = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x) {
      const int64_t from_x = (c + a * x + b * y) >> 16, from_y = (f + d * x + e * y) >> 16;
      if (from_x < 0 || from_x >= image.width || from_y < 0 || from_y >= image.height) continue;
      const uint8_t* pixel = image.row(static_cast<int>(from_y)) + 3 * from_x;
      std::copy(pixel, pixel + 3, out.row(y) + 3 * x);
    }
}

// Rounds to 15 decimals as Python's round(v, 15): halves by the exact binary value.
double rounded15(double v) {
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.15f", v);
  return std::strtod(digits, nullptr);
}

}  // namespace

Image affine(const Image& image, const std::array<double, 6>& m, Interpolation interpolation,
             const Colour& fill) {
  check(image.channels == 3, "cannot move the pixels of an image of ", image.channels,
        " channels, must be 3");
  check(interpolation == Interpolation::nearest || interpolation == Interpolation::bilinear ||
            interpolation == Interpolation::bicubic,
        "pixels can be moved with nearest, bilinear or bicubic interpolation only");
  for (const double v : m) check(std::isfinite(v) && std::abs(v) < 1e6, "affine matrix holds ", v);
  Image out(image.width, image.height);
  for (size_t i = 0; i < out.pixels.size(); i += 3) std::copy(fill.begin(), fill.end(), &out.pixels[i]);
  if (interpolation == Interpolation::nearest) {
    nearest(image, m, out);
    return out;
  }
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x) {
      const double centre_x = x + 0.5, centre_y = y + 0.5;
      const double from_x = m[0] * centre_x + m[1] * centre_y + m[2],
                   from_y = m[3] * centre_x + m[4] * centre_y + m[5];
      if (from_x < 0 || from_x >= image.width || from_y < 0 || from_y >= image.height) continue;
      if (interpolation == Interpolation::bilinear)
        bilinear(image, place_of(from_x, from_y), out.row(y) + 3 * x);
      else
        bicubic(image, place_of(from_x, from_y), out.row(y) + 3 * x);
    }
  return out;
}

Image rotate(const Image& image, double degrees, Interpolation interpolation, const Colour& fill) {
  double angle = std::fmod(degrees, 360.0);
  if (angle < 0) angle += 360.0;
  if (angle == 0) return image;
  if (angle == 180) return orient(image, 3);
  if (angle == 90 && image.width == image.height) return orient(image, 8);
  if (angle == 270 && image.width == image.height) return orient(image, 6);
  const double radians = -(angle * (std::numbers::pi / 180.0));
  const double centre_x = image.width / 2.0, centre_y = image.height / 2.0;
  const double cosine = rounded15(std::cos(radians)), sine = rounded15(std::sin(radians));
  const double minus_sine = rounded15(-std::sin(radians));
  std::array<double, 6> m = {cosine, sine, 0.0, minus_sine, cosine, 0.0};
  m[2] = cosine * -centre_x + sine * -centre_y + 0.0;
  m[5] = minus_sine * -centre_x + cosine * -centre_y + 0.0;
  m[2] += centre_x;
  m[5] += centre_y;
  return affine(image, m, interpolation, fill);
}

}  // namespace tessera::data
