#include "data/info.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/error.h"
#include "core/random.h"
#include "core/threads.h"

namespace tessera::data {
namespace {

// Sums in whole numbers, so that neither threads nor order change the result.
struct Sums {
  std::array<uint64_t, 3> values{}, squares{};
  uint64_t pixels = 0, widths = 0, heights = 0;
  int64_t pictures = 0;
  int min_width = INT32_MAX, max_width = 0, min_height = INT32_MAX, max_height = 0;

  void add(const Image& image) {
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      const uint64_t value = image.pixels[i];
      values[i % 3] += value;
      squares[i % 3] += value * value;
    }
    pixels += image.pixels.size() / 3;
    widths += static_cast<uint64_t>(image.width);
    heights += static_cast<uint64_t>(image.height);
    ++pictures;
    min_width = std::min(min_width, image.width);
    max_width = std::max(max_width, image.width);
    min_height = std::min(min_height, image.height);
    max_height = std::max(max_height, image.height);
  }

  void add(const Sums& other) {
    for (size_t c = 0; c < 3; ++c) {
      values[c] += other.values[c];
      squares[c] += other.squares[c];
    }
    pixels += other.pixels;
    widths += other.widths;
    heights += other.heights;
    pictures += other.pictures;
    min_width = std::min(min_width, other.min_width);
    max_width = std::max(max_width, other.max_width);
    min_height = std::min(min_height, other.min_height);
    max_height = std::max(max_height, other.max_height);
  }
};

}  // namespace

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
        part.add(decode_sample(source.read(indices[static_cast<size_t>(i)])));
      } catch (const Error&) {
        continue;  // `data check` names it
      }
    const std::lock_guard lock(mutex);
    all.add(part);
  });
  PixelStatistics result;
  result.pictures = all.pictures;
  if (all.pictures == 0) return result;
  const auto n = static_cast<double>(all.pixels), pictures = static_cast<double>(all.pictures);
  for (size_t c = 0; c < 3; ++c) {
    const double mean = static_cast<double>(all.values[c]) / n;
    const double variance = static_cast<double>(all.squares[c]) / n - mean * mean;
    result.mean[c] = mean / 255;
    result.std[c] = std::sqrt(std::max(variance, 0.0)) / 255;
  }
  result.mean_width = static_cast<double>(all.widths) / pictures;
  result.mean_height = static_cast<double>(all.heights) / pictures;
  result.min_width = all.min_width;
  result.max_width = all.max_width;
  result.min_height = all.min_height;
  result.max_height = all.max_height;
  return result;
}

}  // namespace tessera::data
