#include "data/base/info.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "core/threads.h"

namespace tessera::data {
namespace {

// Integer sums do not depend on threads or order. Each image adds its own mean and mean square, so that large
// images do not get more weight.
struct Sums {
  static constexpr int kFraction = 20;  // fractional bits; 255^2 * 178956970 pixels still fit into 64
  std::array<uint64_t, 3> means{}, squares{};
  std::vector<int> widths, heights;
  int64_t oriented = 0, constant = 0;

  void add(const RawSample& sample) {
    const Image image = decode_sample(sample);
    oriented += has_orientation(sample);
    constant += nearly_constant(image);
    add(image);
  }

  void add(const Image& image) {
    std::array<uint64_t, 3> sums{}, sums_of_squares{};
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      const uint64_t value = image.pixels[i];
      sums[i % 3] += value;
      sums_of_squares[i % 3] += value * value;
    }
    const uint64_t pixels = image.pixels.size() / 3;
    for (size_t c = 0; c < 3; ++c) {
      means[c] += (sums[c] << kFraction) / pixels;
      squares[c] += (sums_of_squares[c] << kFraction) / pixels;
    }
    widths.push_back(image.width);
    heights.push_back(image.height);
  }

  void add(const Sums& other) {
    for (size_t c = 0; c < 3; ++c) {
      means[c] += other.means[c];
      squares[c] += other.squares[c];
    }
    oriented += other.oriented, constant += other.constant;
    widths.insert(widths.end(), other.widths.begin(), other.widths.end());
    heights.insert(heights.end(), other.heights.begin(), other.heights.end());
  }
};

// Returns the minimum, the median (the lower of two) and the maximum.
SideRange range_of(std::vector<int>& sides) {
  std::sort(sides.begin(), sides.end());
  return {sides.front(), sides[(sides.size() - 1) / 2], sides.back()};
}

}  // namespace

bool nearly_constant(const Image& image) {
  const auto channels = static_cast<size_t>(image.channels);
  std::array<uint8_t, 4> least{255, 255, 255, 255}, most{};
  for (size_t i = 0; i < image.pixels.size(); i += channels)
    for (size_t c = 0; c < std::min(channels, least.size()); ++c) {
      least[c] = std::min(least[c], image.pixels[i + c]), most[c] = std::max(most[c], image.pixels[i + c]);
      if (most[c] - least[c] > kFewLevels) return false;
    }
  return !image.pixels.empty();
}

bool has_orientation(const RawSample& sample) {
  const auto* bytes = std::get_if<std::vector<std::byte>>(&sample.picture);
  return bytes && image_info(*bytes, sample.name).orientation != 1;
}

std::vector<int64_t> draw_indices(const Source& source, int64_t count, uint64_t seed) {
  auto indices = RandomStream(seed, "preview").permutation(source.size());
  indices.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, source.size())));
  std::sort(indices.begin(), indices.end());
  return indices;
}

PixelStatistics pixel_statistics(const Source& source, int64_t count) {
  const auto indices = draw_indices(source, count, 0);
  Sums all;
  std::mutex mutex;
  parallel_for(static_cast<int64_t>(indices.size()), 16, [&](int64_t begin, int64_t end) {
    Sums part;
    for (int64_t i = begin; i < end; ++i) try {
        part.add(source.read(indices[static_cast<size_t>(i)]));
      } catch (const Error&) {
        continue;  // reported by `data check`
      }
    const std::lock_guard lock(mutex);
    all.add(part);
  });
  PixelStatistics result;
  result.images = static_cast<int64_t>(all.widths.size());
  result.oriented = all.oriented, result.nearly_constant = all.constant;
  if (result.images == 0) return result;
  const double scale = std::ldexp(static_cast<double>(result.images), Sums::kFraction);
  for (size_t c = 0; c < 3; ++c) {
    const double mean = static_cast<double>(all.means[c]) / scale;
    const double variance = static_cast<double>(all.squares[c]) / scale - mean * mean;
    result.mean[c] = mean / 255;
    result.std[c] = std::sqrt(std::max(variance, 0.0)) / 255;
  }
  result.width = range_of(all.widths);
  result.height = range_of(all.heights);
  return result;
}

}  // namespace tessera::data
