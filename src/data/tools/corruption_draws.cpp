// The random draws of corruptions, from one stream per image.
#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/random.h"
#include "data/tools/corruption.h"
#include "data/transforms/planes.h"
#include "data/transforms/resize.h"

namespace tessera::data {
namespace {

// Poisson numbers of one mean by inversion: the distribution in steps of 2^-32, and a start of the search for
// each value of a word's upper eight bits.
class PoissonTable {
 public:
  static constexpr double kLargestMean = 100;
  explicit PoissonTable(double mean) {
    double chance = std::exp(-mean), sum = 0;
    for (int64_t count = 0; sum * 0x1p32 < 0x1p32 - 1 && count < 1000; ++count) {
      sum += chance, chance *= mean / static_cast<double>(count + 1);
      below_.push_back(static_cast<uint32_t>(std::min(sum * 0x1p32, 0x1p32 - 1)));
    }
    below_.push_back(UINT32_MAX);
    size_t count = 0;
    for (uint32_t high = 0; high < begins_.size(); ++high) {
      while (below_[count] < high << 24) ++count;
      begins_[high] = static_cast<uint16_t>(count);
    }
  }
  int64_t of(uint32_t word) const {
    size_t count = begins_[word >> 24];
    while (below_[count] < word) ++count;
    return static_cast<int64_t>(count);
  }

 private:
  std::vector<uint32_t> below_;  // 2^32 times the probability of a count of at most this
  std::array<uint16_t, 256> begins_{};
};

// Draws a Poisson number for each byte of an image, with its share of `photons` as mean (at most
// kLargestMean).
std::vector<int64_t> poisson_of_bytes(std::span<const uint8_t> bytes, double photons, RandomStream& stream) {
  std::array<std::optional<PoissonTable>, 256> tables;
  const std::vector<uint32_t> words = bulk_words(stream, bytes.size());
  std::vector<int64_t> counts(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::optional<PoissonTable>& table = tables[bytes[i]];
    if (!table) table.emplace(bytes[i] / 255.0 * photons);
    counts[i] = table->of(words[i]);
  }
  return counts;
}

// Draws a Poisson number: by products of uniform ones for small means, else by transformed rejection
// (Hoermann 1993, PTRS).
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

// Crops a region of the image's size from a frost image, which is enlarged first if it is smaller.
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

std::vector<double> plasma_numbers(int side, RandomStream& stream) {
  return bulk_uniform(stream, static_cast<size_t>(plasma_draws(side)), -1, 1);
}

// Draws frost if no images are given: ridges of a plasma map, smeared along a line, in a cold white.
Image drawn_frost(const Image& image, RandomStream& stream) {
  const int side = plasma_side(image.height, image.width);
  const std::vector<double> map = plasma_map(side, 1.6, plasma_numbers(side, stream));
  Plane ridges(image.height, image.width);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) {
      const double value = map[static_cast<size_t>(y) * static_cast<size_t>(side) + static_cast<size_t>(x)];
      const double ridge = 1 - std::abs(2 * value - 1);
      ridges.row(y)[x] = ridge * ridge * ridge;
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

}  // namespace

int plasma_side(int height, int width) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(height, width))));
}

int64_t plasma_draws(int side) { return static_cast<int64_t>(side) * side - 1; }

CorruptionDraws draw_corruption(const std::string& corruption, std::span<const double> c, const Image& image,
                                const FrostImages& frosts, RandomStream& stream) {
  const auto cells = static_cast<size_t>(image.width) * static_cast<size_t>(image.height);
  CorruptionDraws draws;
  if (corruption == "gaussian_noise" || corruption == "speckle_noise") {
    draws.normal = bulk_normal(stream, 3 * cells);
  } else if (corruption == "shot_noise") {
    if (c[0] <= PoissonTable::kLargestMean)
      draws.counts = poisson_of_bytes(image.pixels, c[0], stream);
    else
      for (const uint8_t byte : image.pixels) draws.counts.push_back(poisson(stream, byte / 255.0 * c[0]));
  } else if (corruption == "impulse_noise") {
    draws.uniform_1 = bulk_uniform(stream, 3 * cells), draws.uniform_2 = bulk_uniform(stream, 3 * cells);
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
    draws.normal_2d = bulk_normal(stream, cells);
    draws.angle = stream.uniform(-135, -45);
  } else if (corruption == "fog") {
    draws.plasma = plasma_numbers(plasma_side(image.height, image.width), stream);
  } else if (corruption == "frost") {
    draws.frost = frosts.empty() ? drawn_frost(image, stream)
                                 : cut_frost(frosts[stream.below(frosts.size())], image, stream);
  } else if (corruption == "elastic_transform") {
    for (auto& point : draws.affine)
      for (double& shift : point) shift = stream.uniform(-1, 1);
    draws.field_x = bulk_uniform(stream, cells, -1, 1), draws.field_y = bulk_uniform(stream, cells, -1, 1);
  }
  return draws;
}

}  // namespace tessera::data
