#include "data/base/geometry_map.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/base/geometry.h"

namespace tessera::data {

int AxisMap::source_pixel(int out) const {
  int pixel = start + (mirrored ? size - 1 - out : out);
  if (reflected) pixel = reflect(pixel, resized);
  if (pixel < 0 || pixel >= resized) return -1;
  const double centre = source_from + (pixel + 0.5) * (source_to - source_from) / resized;
  return std::clamp(static_cast<int>(std::floor(centre)), 0, source_size - 1);
}

double AxisMap::forward(double source) const {
  const double out = (source - source_from) * resized / (source_to - source_from) - start;
  return mirrored ? size - out : out;
}

void map_mask(const Image& mask, const GeometryMap& map, uint8_t fill, uint8_t* out) {
  check(mask.channels == 1 && mask.width == map.x.source_size && mask.height == map.y.source_size,
        "a mask of ", mask.width, "x", mask.height, " with ", mask.channels, " channels, must be ",
        map.x.source_size, "x", map.y.source_size, " with 1");
  std::vector<int> columns(static_cast<size_t>(map.x.size));
  for (int x = 0; x < map.x.size; ++x) columns[static_cast<size_t>(x)] = map.x.source_pixel(x);
  for (int y = 0; y < map.y.size; ++y) {
    const int row = map.y.source_pixel(y);
    for (const int column : columns) *out++ = row < 0 || column < 0 ? fill : mask.row(row)[column];
  }
}

std::vector<Instance> map_instances(const std::vector<Instance>& instances, const GeometryMap& map,
                                    double least_visible) {
  std::vector<Instance> mapped;
  for (const Instance& one : instances) {
    const auto [left, right] = std::minmax({map.x.forward(one.left), map.x.forward(one.right)});
    const auto [top, bottom] = std::minmax({map.y.forward(one.top), map.y.forward(one.bottom)});
    const double width = map.x.size, height = map.y.size;
    const Instance cut{std::clamp(left, 0.0, width), std::clamp(top, 0.0, height),
                       std::clamp(right, 0.0, width), std::clamp(bottom, 0.0, height), one.label};
    const double area = (right - left) * (bottom - top),
                 left_over = (cut.right - cut.left) * (cut.bottom - cut.top);
    if (left_over > 0 && left_over >= least_visible * area) mapped.push_back(cut);
  }
  return mapped;
}

}  // namespace tessera::data
