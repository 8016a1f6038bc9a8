#include "data/transforms/augment_erase.h"

#include <cmath>

#include "core/error.h"
#include "data/base/geometry.h"

namespace tessera::data {

void check_erase(const EraseConfig& c) {
  if (!(c.probability >= 0 && c.probability <= 1))
    fail_usage("erase.probability is ", c.probability, ", must be 0 to 1");
  if (c.mode != "const" && c.mode != "rand" && c.mode != "pixel")
    fail_usage("erase.mode is '", c.mode, "', must be const, rand or pixel");
  if (c.least_count < 1 || c.most_count < c.least_count || c.most_count > 1000)
    fail_usage("erase.least_count and most_count must be 1 <= least <= most");
  if (!(c.least_area > 0 && c.least_area <= c.most_area && c.most_area <= 1))
    fail_usage("erase.least_area and most_area must be 0 < least <= most <= 1");
  if (!(c.least_aspect > 0 && c.least_aspect <= 1))
    fail_usage("erase.least_aspect is ", c.least_aspect, ", must be above 0 and at most 1");
}

std::vector<Box> erase_boxes(const EraseConfig& config, int height, int width, Draws& draws) {
  std::vector<Box> boxes;
  if (draws.fraction() > config.probability) return boxes;
  const double area = static_cast<double>(height) * width;
  const int64_t count = config.least_count == config.most_count
                            ? config.least_count
                            : draws.integer(config.least_count, config.most_count);
  for (int64_t i = 0; i < count; ++i) {
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double target =
          draws.uniform(config.least_area, config.most_area) * area / static_cast<double>(count);
      const double aspect =
          std::exp(draws.uniform(std::log(config.least_aspect), std::log(1 / config.least_aspect)));
      const int h = round_half_even(std::sqrt(target * aspect)),
                w = round_half_even(std::sqrt(target / aspect));
      if (w >= width || h >= height) continue;
      const int top = static_cast<int>(draws.integer(0, height - h));
      const int left = static_cast<int>(draws.integer(0, width - w));
      boxes.push_back({left, top, w, h});
      break;
    }
  }
  return boxes;
}

void erase(const EraseConfig& config, int channels, int height, int width, Draws& draws, float* picture) {
  for (const Box& box : erase_boxes(config, height, width, draws)) {
    std::vector<float> colour(static_cast<size_t>(channels));
    if (config.mode == "rand")
      for (float& v : colour) v = static_cast<float>(draws.normal());
    for (size_t c = 0; c < colour.size(); ++c)
      for (int y = box.top; y < box.top + box.height; ++y) {
        float* row = picture + (static_cast<ptrdiff_t>(c) * height + y) * width + box.left;
        for (int x = 0; x < box.width; ++x)
          row[x] = config.mode == "pixel" ? static_cast<float>(draws.normal()) : colour[c];
      }
  }
}

}  // namespace tessera::data
