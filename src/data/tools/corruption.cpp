#include "data/tools/corruption.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/error.h"
#include "core/text.h"
#include "data/transforms/planes.h"
#include "data/transforms/resize.h"

namespace tessera::data {
namespace {

using Parameters = std::span<const double>;

// Planes in [0, 1] unless noted otherwise; a corruption changes them in place.
struct Work {
  const Image& image;
  Parameters c;
  const CorruptionDraws& draws;
  Planes x;
};

// Returns the draw for a pixel's channel, from [height, width, 3].
double at(const std::vector<double>& draws, size_t pixel, size_t channel) {
  return draws[3 * pixel + channel];
}

void need(const std::vector<double>& draws, size_t count, const char* what) {
  check(draws.size() == count, "corruption: ", draws.size(), " numbers of ", what, " for ", count);
}

template <class F>
void each(Work& work, const F& f) {
  for (size_t channel = 0; channel < 3; ++channel)
    for (size_t i = 0; i < work.x[channel].values.size(); ++i) f(work.x[channel].values[i], i, channel);
}

// c: deviation.
void gaussian_noise(Work& work) {
  need(work.draws.normal, work.image.pixels.size(), "noise");
  each(work, [&](double& x, size_t i, size_t k) { x += work.c[0] * at(work.draws.normal, i, k); });
}

void speckle_noise(Work& work) {
  need(work.draws.normal, work.image.pixels.size(), "noise");
  each(work, [&](double& x, size_t i, size_t k) { x += x * work.c[0] * at(work.draws.normal, i, k); });
}

// c: number of photons of a white pixel.
void shot_noise(Work& work) {
  check(work.draws.counts.size() == work.image.pixels.size(), "corruption: ", work.draws.counts.size(),
        " counts for ", work.image.pixels.size(), " numbers");
  each(work, [&](double& x, size_t i, size_t k) {
    x = static_cast<double>(work.draws.counts[3 * i + k]) / work.c[0];
  });
}

// c: share of values that become black or white.
void impulse_noise(Work& work) {
  need(work.draws.uniform_1, work.image.pixels.size(), "chances");
  need(work.draws.uniform_2, work.image.pixels.size(), "chances");
  each(work, [&](double& x, size_t i, size_t k) {
    const double extreme = at(work.draws.uniform_2, i, k) <= 0.5 ? 1 : 0;
    x = at(work.draws.uniform_1, i, k) <= work.c[0] ? extreme : x;
  });
}

// c: deviation in pixels.
void gaussian_blur(Work& work) {
  for (Plane& plane : work.x) plane = gaussian(plane, work.c[0], 4, Edge::repeat);
}

// c: standard deviation of the blur before and after, maximum offset of a source pixel, number of rounds.
// Pixels are copied in place, from the lower right upwards. The published line looks like a swap of two
// pixels, but copies the source pixel to both.
void glass_blur(Work& work) {
  const auto reach = static_cast<int>(work.c[1]), rounds = static_cast<int>(work.c[2]);
  for (Plane& plane : work.x) plane = gaussian(plane, work.c[0], 4, Edge::repeat);
  Image bytes = truncated(work.x);
  size_t next = 0;
  for (int round = 0; round < rounds; ++round)
    for (int y = bytes.height - reach; y > reach; --y)
      for (int x = bytes.width - reach; x > reach; --x) {
        check(next < work.draws.offsets.size(), "corruption: too few offsets for glass_blur");
        const auto [dx, dy] = work.draws.offsets[next++];
        std::copy_n(bytes.row(y + dy) + static_cast<ptrdiff_t>(3) * (x + dx), 3,
                    bytes.row(y) + static_cast<ptrdiff_t>(3) * x);
      }
  work.x = planes_of(bytes);
  for (Plane& plane : work.x) plane = gaussian(plane, work.c[0], 4, Edge::repeat);
}

// c: radius of the disk, standard deviation of the blur of its edge.
void defocus_blur(Work& work) {
  const double radius = work.c[0];
  const int reach = radius <= 8 ? 8 : static_cast<int>(radius), side = 2 * reach + 1;
  Plane disk(side, side);
  double cells = 0;
  for (int y = -reach; y <= reach; ++y)
    for (int x = -reach; x <= reach; ++x)
      if (x * x + y * y <= radius * radius) disk.row(y + reach)[x + reach] = 1, cells += 1;
  for (double& cell : disk.values) cell /= cells;
  const Plane kernel = filter_lines(disk, gaussian_weights(work.c[1], radius <= 8 ? 1 : 2), Edge::mirror_101);
  for (Plane& plane : work.x) plane = filter_square(plane, kernel.values, side, Edge::mirror_101);
}

// c: radius and standard deviation in pixels.
void motion_blur(Work& work) {
  for (Plane& plane : work.x)
    plane = motion_blurred(plane, static_cast<int>(work.c[0]), work.c[1], work.draws.angle);
}

// c: first, end and step of the zooms; their number and values follow NumPy's arange.
void zoom_blur(Work& work) {
  const auto count = static_cast<int>(std::ceil((work.c[1] - work.c[0]) / work.c[2]));
  const double step = (work.c[0] + work.c[2]) - work.c[0];
  for (Plane& plane : work.x) {
    Plane sum = plane;
    for (int i = 0; i < count; ++i) {
      const Plane larger = zoomed(plane, work.c[0] + i * step);
      for (size_t k = 0; k < sum.values.size(); ++k) sum.values[k] += larger.values[k];
    }
    for (double& value : sum.values) value /= count + 1;
    plane = std::move(sum);
  }
}

// c: thickness and decay of the plasma map.
void fog(Work& work) {
  const int side = plasma_side(work.image.height, work.image.width);
  const std::vector<double> map = plasma_map(side, work.c[1], work.draws.plasma);
  double most = 0;
  for (const Plane& plane : work.x)
    most = std::max(most, *std::max_element(plane.values.begin(), plane.values.end()));
  const double scale = most / (most + work.c[0]);
  for (Plane& plane : work.x)
    for (int y = 0; y < plane.height; ++y)
      for (int x = 0; x < plane.width; ++x)
        plane.row(y)[x] = scale * (plane.row(y)[x] + work.c[0] * map[static_cast<size_t>(y * side + x)]);
}

// c: weights of the image and of the frost.
void frost(Work& work) {
  const Image& ice = work.draws.frost;
  check(ice.width == work.image.width && ice.height == work.image.height && ice.channels == 3,
        "corruption: frost of ", ice.width, "x", ice.height, " for an image of ", work.image.width, "x",
        work.image.height);
  each(work, [&](double& x, size_t i, size_t k) {
    x = work.c[0] * x + work.c[1] * (ice.pixels[3 * i + k] / 255.0);
  });
}

// c: mean and deviation of the flakes, zoom, threshold, radius and deviation of the motion blur, weight of
// the image's colours.
void snow(Work& work) {
  const Parameters c = work.c;
  Plane layer(work.image.height, work.image.width);
  need(work.draws.normal_2d, layer.values.size(), "snow");
  for (size_t i = 0; i < layer.values.size(); ++i) layer.values[i] = c[0] + c[1] * work.draws.normal_2d[i];
  layer = zoomed(layer, c[2]);
  for (double& flake : layer.values)  // as 8-bit numbers
    flake = flake < c[3] ? 0 : static_cast<double>(static_cast<int>(std::clamp(flake, 0.0, 1.0) * 255));
  layer = motion_blurred(layer, static_cast<int>(c[4]), c[5], work.draws.angle);
  constexpr double kNoFraction =
      0x1.8p52;  // adding it leaves no bits for a fraction, so the sum is rounded to even
  for (double& flake : layer.values) flake = ((flake + kNoFraction) - kNoFraction) / 255;
  for (size_t i = 0; i < layer.values.size(); ++i) {
    const double luma =
        0.299 * work.x[0].values[i] + 0.587 * work.x[1].values[i] + 0.114 * work.x[2].values[i];
    const double both = layer.values[i] + layer.values[layer.values.size() - 1 - i];  // and its 180° rotation
    for (Plane& plane : work.x) {
      const double own = plane.values[i];
      plane.values[i] = c[6] * own + (1 - c[6]) * std::max(own, 1.5 * luma + 0.5) + both;
    }
  }
}

struct Hsv {
  double hue = 0, saturation = 0, value = 0;  // hue as a fraction of the circle
};

Hsv hsv_of(double r, double g, double b) {
  const double value = std::max({r, g, b}), range = value - std::min({r, g, b});
  if (range == 0) return {0, 0, value};
  double hue = 0;
  if (value == b)
    hue = 4 + (r - g) / range;
  else if (value == g)
    hue = 2 + (b - r) / range;
  else
    hue = (g - b) / range;
  hue /= 6;
  return {hue - std::floor(hue), range / value, value};
}

std::array<double, 3> rgb_of(const Hsv& hsv) {
  const double sector = std::floor(hsv.hue * 6), part = hsv.hue * 6 - sector, v = hsv.value;
  const double p = v * (1 - hsv.saturation), q = v * (1 - part * hsv.saturation),
               t = v * (1 - (1 - part) * hsv.saturation);
  switch (static_cast<int>(sector) % 6) {
    case 0:
      return {v, t, p};
    case 1:
      return {q, v, p};
    case 2:
      return {p, v, t};
    case 3:
      return {p, q, v};
    case 4:
      return {t, p, v};
    default:
      return {v, p, q};
  }
}

template <class F>
void in_hsv(Work& work, const F& change) {
  for (size_t i = 0; i < work.x[0].values.size(); ++i) {
    Hsv hsv = hsv_of(work.x[0].values[i], work.x[1].values[i], work.x[2].values[i]);
    change(hsv);
    const auto rgb = rgb_of(hsv);
    for (size_t k = 0; k < 3; ++k) work.x[k].values[i] = rgb[k];
  }
}

// c: addend of the value.
void brightness(Work& work) {
  in_hsv(work, [&](Hsv& hsv) { hsv.value = std::clamp(hsv.value + work.c[0], 0.0, 1.0); });
}

// c: factor and addend of the saturation.
void saturate(Work& work) {
  in_hsv(work,
         [&](Hsv& hsv) { hsv.saturation = std::clamp(hsv.saturation * work.c[0] + work.c[1], 0.0, 1.0); });
}

// c: factor on the distance from each channel's mean.
void contrast(Work& work) {
  for (Plane& plane : work.x) {
    const double mean =
        loops::sum_of(plane.values.data(), plane.values.size()) / static_cast<double>(plane.values.size());
    for (double& value : plane.values) value = (value - mean) * work.c[0] + mean;
  }
}

// c: quality.
void jpeg_compression(Work& work) {
  work.x = planes_of(decode_image(encode_jpeg(work.image, static_cast<int>(work.c[0])), "jpeg_compression"));
}

// c: factor on the sides.
void pixelate(Work& work) {
  const auto small = [&](int side) { return std::max(1, static_cast<int>(side * work.c[0])); };
  const Image shrunk =
      resize(work.image, small(work.image.width), small(work.image.height), Interpolation::box);
  work.x = planes_of(resize(shrunk, work.image.width, work.image.height, Interpolation::box));
}

struct Place {
  double x = 0, y = 0;
};

// The affine map that sends three points to three others.
class AffineMap {
 public:
  AffineMap(const std::array<Place, 3>& from, const std::array<Place, 3>& to)
      : origin_(from[0]), image_(to[0]) {
    u_ = {from[1].x - from[0].x, from[1].y - from[0].y}, v_ = {from[2].x - from[0].x, from[2].y - from[0].y};
    along_u_ = {to[1].x - to[0].x, to[1].y - to[0].y}, along_v_ = {to[2].x - to[0].x, to[2].y - to[0].y};
    area_ = u_.x * v_.y - u_.y * v_.x;
  }
  Place operator()(double x, double y) const {
    const double dx = x - origin_.x, dy = y - origin_.y;
    const double s = (dx * v_.y - dy * v_.x) / area_, t = (u_.x * dy - u_.y * dx) / area_;
    return {image_.x + s * along_u_.x + t * along_v_.x, image_.y + s * along_u_.y + t * along_v_.y};
  }

 private:
  Place origin_, image_, u_, v_, along_u_, along_v_;
  double area_ = 1;
};

// Returns smooth random shifts of all pixels along one axis.
Plane shifts_of(const Work& work, const std::vector<double>& draws) {
  Plane shifts(work.image.height, work.image.width);
  need(draws, shifts.values.size(), "shifts");
  shifts.values = draws;
  shifts = gaussian(shifts, work.c[1], 3, Edge::mirror);
  for (double& shift : shifts.values) shift *= work.c[0];
  return shifts;
}

// Takes each pixel of the three channels from place_of(y, x).
template <class PlaceOf>
void move_pixels(Work& work, Edge edge, const PlaceOf& place_of) {
  const int height = work.image.height, width = work.image.width;
  const Interpolator between(height, width, edge);
  Planes out = {Plane(height, width), Plane(height, width), Plane(height, width)};
  for (int y = 0; y < height; ++y) {
    const std::array<double*, 3> rows = {out[0].row(y), out[1].row(y), out[2].row(y)};
    for (int x = 0; x < width; ++x) {
      const Place wanted = place_of(y, x);
      const Interpolator::Place place = between.at(wanted.y, wanted.x);
      for (size_t k = 0; k < 3; ++k) rows[k][x] = place.of(work.x[k]);
    }
  }
  work.x = std::move(out);
}

// c: size and smoothness (standard deviation) of the per-pixel shifts, range of the affine map's shifts, in
// pixels.
void elastic_transform(Work& work) {
  const int height = work.image.height, width = work.image.width;
  const double middle_x = width / 2, middle_y = height / 2, reach = std::min(height, width) / 3;
  const std::array<Place, 3> from = {{{middle_x + reach, middle_y + reach},
                                      {middle_x + reach, middle_y - reach},
                                      {middle_x - reach, middle_y - reach}}};
  std::array<Place, 3> to = from;
  for (size_t i = 0; i < 3; ++i)
    to[i].x += work.c[2] * work.draws.affine[i][0], to[i].y += work.c[2] * work.draws.affine[i][1];
  const AffineMap back(to, from);
  const Plane right = shifts_of(work, work.draws.field_x), down = shifts_of(work, work.draws.field_y);
  move_pixels(work, Edge::mirror_101, [&](int y, int x) { return back(x, y); });
  const double* shift_x = right.values.data();
  const double* shift_y = down.values.data();
  move_pixels(work, Edge::mirror, [&](int y, int x) {
    const ptrdiff_t cell = static_cast<ptrdiff_t>(y) * width + x;
    return Place{x + shift_x[cell], y + shift_y[cell]};
  });
}

using Corruption = void (*)(Work&);
const std::map<std::string, Corruption>& table() {
  static const std::map<std::string, Corruption> all = {{"gaussian_noise", gaussian_noise},
                                                        {"shot_noise", shot_noise},
                                                        {"impulse_noise", impulse_noise},
                                                        {"defocus_blur", defocus_blur},
                                                        {"glass_blur", glass_blur},
                                                        {"motion_blur", motion_blur},
                                                        {"zoom_blur", zoom_blur},
                                                        {"snow", snow},
                                                        {"frost", frost},
                                                        {"fog", fog},
                                                        {"brightness", brightness},
                                                        {"contrast", contrast},
                                                        {"elastic_transform", elastic_transform},
                                                        {"pixelate", pixelate},
                                                        {"jpeg_compression", jpeg_compression},
                                                        {"speckle_noise", speckle_noise},
                                                        {"gaussian_blur", gaussian_blur},
                                                        {"saturate", saturate}};
  return all;
}

}  // namespace

// Each round halves the step. It sets the centres of squares, then the midpoints of their sides, to the mean
// of their four neighbours plus a draw. The draw is scaled by the roughness of the step. Edges wrap around.
std::vector<double> plasma_map(int side, double decay, std::span<const double> draws) {
  check(side >= 2 && (side & (side - 1)) == 0 && std::ssize(draws) == plasma_draws(side), "plasma of ", side,
        " with ", draws.size(), " draws");
  std::vector<double> map(static_cast<size_t>(side) * static_cast<size_t>(side));
  const auto last = static_cast<unsigned>(side - 1);  // side is a power of two
  const auto cell = [&](int y, int x) -> double& {
    return map[static_cast<size_t>(static_cast<unsigned>(y) & last) * static_cast<size_t>(side) +
               (static_cast<unsigned>(x) & last)];
  };
  double roughness = 100;
  size_t next = 0;
  for (int step = side; step >= 2; step /= 2, roughness /= decay) {
    const int half = step / 2;
    const auto fill = [&](int first_y, int first_x, bool square) {
      for (int y = first_y; y < side; y += step)
        for (int x = first_x; x < side; x += step) {
          const double around =
              square ? cell(y - half, x - half) + cell(y - half, x + half) + cell(y + half, x - half) +
                           cell(y + half, x + half)
                     : cell(y - half, x) + cell(y + half, x) + cell(y, x - half) + cell(y, x + half);
          cell(y, x) = around / 4 + roughness * roughness * draws[next++];
        }
    };
    fill(half, half, true);
    fill(0, half, false);
    fill(half, 0, false);
  }
  const auto [least, most] = std::minmax_element(map.begin(), map.end());
  const double low = *least, range = *most - low;
  for (double& value : map) value = range > 0 ? (value - low) / range : 0;
  return map;
}

namespace {

Planes corrupted_planes(const Image& image, const std::string& corruption, Parameters parameters,
                        const CorruptionDraws& draws) {
  const auto found = table().find(corruption);
  if (found == table().end())
    fail_usage("corruption '", printable(corruption), "' is not known",
               did_you_mean(corruption, corruption_names()));
  if (image.channels != 3 || std::min(image.width, image.height) < kLeastCorruptedSide)
    fail("an image of ", image.width, "x", image.height, " with ", image.channels,
         " channels cannot be corrupted: it must have 3, and at least ", kLeastCorruptedSide,
         " pixels a side");
  Work work{image, parameters, draws, planes_of(image)};
  found->second(work);
  return std::move(work.x);
}

}  // namespace

std::vector<double> corrupt_unrounded(const Image& image, const std::string& corruption,
                                      Parameters parameters, const CorruptionDraws& draws) {
  const Planes planes = corrupted_planes(image, corruption, parameters, draws);
  std::vector<double> out(image.pixels.size());
  for (size_t k = 0; k < 3; ++k)
    for (size_t i = 0; i < planes[k].values.size(); ++i)
      out[3 * i + k] = std::clamp(planes[k].values[i], 0.0, 1.0) * 255;
  return out;
}

Image corrupt(const Image& image, const std::string& corruption, Parameters parameters,
              const CorruptionDraws& draws) {
  return truncated(corrupted_planes(image, corruption, parameters, draws));
}

}  // namespace tessera::data
