// What corruptions draw, from one stream an image.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "data/corruption.h"
#include "data/planes.h"
#include "data/resize.h"

namespace tessera::data {
namespace {

// A Poisson number: by products of uniform ones where the mean is small, else by transformed rejection (Hoermann 1993, PTRS).
int64_t poisson(RandomStream& stream, double mean) {
  if (mean <= 0) return 0;
  if (mean < 10) {
    const double floor = std::exp(-mean);
    int64_t count = 0;
    for (double product = stream.uniform(); product > floor; product *= stream.uniform()) ++count;
    return count;
  }
  const double b = 0.931 + 2.53 * std::sqrt(mean), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = stream.uniform() - 0.5, v = stream.uniform(), us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + mean + 0.43);
    if (us >= 0.07 && v <= v_r) return static_cast<int64_t>(k);
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <=
        -mean + k * std::log(mean) - std::lgamma(k + 1))
      return static_cast<int64_t>(k);
  }
}

// A part as large as the image of a frost image, enlarged first where it is smaller.
Image cut_frost(const Image& frost, const Image& image, RandomStream& stream) {
  Image from = frost;
  const double grow = std::max(static_cast<double>(image.width) / frost.width,
                               static_cast<double>(image.height) / frost.height);
  if (grow > 1)
    from = resize(frost, std::max(image.width, static_cast<int>(std::ceil(frost.width * grow))),
                  std::max(image.height, static_cast<int>(std::ceil(frost.height * grow))),
                  Interpolation::bilinear);
  const auto left = static_cast<int>(stream.integer(0, from.width - image.width));
  const auto top = static_cast<int>(stream.integer(0, from.height - image.height));
  return cut(from, {left, top, image.width, image.height});
}

// Where there are no images of frost: ridges of a plasma map, smeared along a line, in a cold white.
Image drawn_frost(const Image& image, RandomStream& stream) {
  const int side = plasma_side(image.height, image.width);
  std::vector<double> draws(static_cast<size_t>(plasma_draws(side)));
  for (double& draw : draws) draw = stream.uniform(-1, 1);
  const std::vector<double> map = plasma_map(side, 1.6, draws);
  Plane ridges(image.height, image.width);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) {
      const double value = map[static_cast<size_t>(y) * static_cast<size_t>(side) + static_cast<size_t>(x)];
      ridges.row(y)[x] = std::pow(1 - std::abs(2 * value - 1), 3);
    }
  const Plane crystals = motion_blurred(ridges, std::max(1, image.width / 32), 3, stream.uniform(-180, 180));
  Image frost(image.width, image.height, 3);
  constexpr double kColour[3] = {0.86, 0.93, 1.0};
  for (size_t i = 0; i < crystals.values.size(); ++i)
    for (size_t c = 0; c < 3; ++c)
      frost.pixels[3 * i + c] =
          static_cast<uint8_t>(std::clamp(kColour[c] * (70 + 260 * crystals.values[i]), 0.0, 255.0));
  return frost;
}

std::vector<double> numbers(size_t count, const auto& draw) {
  std::vector<double> out(count);
  for (double& number : out) number = draw();
  return out;
}

}  // namespace

int plasma_side(int height, int width) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(height, width))));
}

int64_t plasma_draws(int side) { return static_cast<int64_t>(side) * side - 1; }

CorruptionDraws draw_corruption(const std::string& corruption, std::span<const double> c, const Image& image,
                                const FrostImages& frosts, RandomStream& stream) {
  const auto cells = static_cast<size_t>(image.width) * static_cast<size_t>(image.height);
  const auto normal = [&] { return stream.normal(); };
  const auto fraction = [&] { return stream.uniform(); };
  const auto signed_one = [&] { return stream.uniform(-1, 1); };
  CorruptionDraws draws;
  if (corruption == "gaussian_noise" || corruption == "speckle_noise") {
    draws.normal = numbers(3 * cells, normal);
  } else if (corruption == "shot_noise") {
    for (const uint8_t byte : image.pixels) draws.counts.push_back(poisson(stream, byte / 255.0 * c[0]));
  } else if (corruption == "impulse_noise") {
    draws.uniform_1 = numbers(3 * cells, fraction), draws.uniform_2 = numbers(3 * cells, fraction);
  } else if (corruption == "glass_blur") {
    const auto reach = static_cast<int>(c[1]), rounds = static_cast<int>(c[2]);
    const int64_t steps = static_cast<int64_t>(std::max(0, image.height - 2 * reach)) *
                          std::max(0, image.width - 2 * reach) * rounds;
    for (int64_t i = 0; i < steps; ++i) {
      const auto x = static_cast<int>(stream.integer(-reach, reach - 1));
      draws.offsets.push_back({x, static_cast<int>(stream.integer(-reach, reach - 1))});
    }
  } else if (corruption == "motion_blur") {
    draws.angle = stream.uniform(-45, 45);
  } else if (corruption == "snow") {
    draws.normal_2d = numbers(cells, normal);
    draws.angle = stream.uniform(-135, -45);
  } else if (corruption == "fog") {
    draws.plasma =
        numbers(static_cast<size_t>(plasma_draws(plasma_side(image.height, image.width))), signed_one);
  } else if (corruption == "frost") {
    draws.frost = frosts.empty() ? drawn_frost(image, stream)
                                 : cut_frost(frosts[stream.below(frosts.size())], image, stream);
  } else if (corruption == "elastic_transform") {
    for (auto& point : draws.affine)
      for (double& shift : point) shift = signed_one();
    draws.field_x = numbers(cells, signed_one), draws.field_y = numbers(cells, signed_one);
  }
  return draws;
}

}  // namespace tessera::data
