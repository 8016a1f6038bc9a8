#include "eval/receptive_field.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace tessera::eval {

std::vector<double> contribution(std::span<const float> gradients, int64_t height, int64_t width) {
  const auto plane = static_cast<size_t>(height * width);
  check(plane > 0 && gradients.size() % plane == 0, "receptive field: ", gradients.size(),
        " gradients are not planes of ", height, "x", width);
  std::vector<double> sums(plane);
  for (size_t i = 0; i < gradients.size(); ++i)
    sums[i % plane] += std::max(0.0, static_cast<double>(gradients[i]));
  return sums;
}

std::vector<double> contribution_map(std::span<const double> contribution) {
  std::vector<double> map;
  for (const double sum : contribution) map.push_back(std::log10(sum + 1));
  const double most = map.empty() ? 0 : *std::max_element(map.begin(), map.end());
  if (most > 0)
    for (double& value : map) value /= most;
  return map;
}

ReceptiveArea receptive_area(std::span<const double> contribution, int64_t height, int64_t width,
                             double share) {
  check(std::ssize(contribution) == height * width, "receptive field: ", contribution.size(),
        " numbers for an image of ", height, "x", width);
  const double all = std::accumulate(contribution.begin(), contribution.end(), 0.0);
  check(all > 0, "receptive field: no pixel contributes to the features at the centre");
  const int64_t longest = std::max(height, width);
  const auto scaled = [&](int64_t length, int64_t side) {  // rounded half to even
    return std::llrint(static_cast<double>(length * side) / static_cast<double>(longest));
  };
  ReceptiveArea area;
  for (int64_t side = 1; side <= longest; ++side) {
    area.side = side, area.box_height = scaled(height, side), area.box_width = scaled(width, side);
    const int64_t top = (height - area.box_height) / 2, left = (width - area.box_width) / 2;
    double inside = 0;
    for (int64_t y = top; y < top + area.box_height; ++y)
      for (int64_t x = left; x < left + area.box_width; ++x)
        inside += contribution[static_cast<size_t>(y * width + x)];
    area.share = inside / all;
    if (area.share >= share) break;
  }
  area.area = static_cast<double>(area.box_height * area.box_width) / static_cast<double>(height * width);
  return area;
}

}  // namespace tessera::eval
