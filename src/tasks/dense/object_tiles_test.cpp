#include "tasks/dense/object_finder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/random.h"

namespace tessera::tasks {
namespace {

// Detects red: each connected rectangle of red pixels, clipped to the image, is an object.
class RedRectangles final : public ObjectFinder {
 public:
  const std::vector<std::string>& object_classes() const override { return names_; }
  int64_t class_number(int64_t label) const override { return label + 1; }
  void set_views(const std::vector<TestView>&) override {}
  std::vector<TestView> views() const override { return {{}}; }
  std::vector<FoundObject> find(const Image& image, double, torch::Device, Precision) override {
    std::vector<FoundObject> found;
    const auto red = [&](int x, int y) {
      return x >= 0 && y >= 0 && x < image.width && y < image.height && image.row(y)[3 * x] > 0;
    };
    for (int y = 0; y < image.height; ++y)
      for (int x = 0; x < image.width; ++x) {
        if (!red(x, y) || red(x - 1, y) || red(x, y - 1)) continue;
        int right = x, bottom = y;
        while (red(right, y)) ++right;
        while (red(x, bottom)) ++bottom;
        std::vector<uint8_t> mask(static_cast<size_t>(image.width * image.height));
        for (int v = y; v < bottom; ++v)
          std::fill_n(mask.begin() + v * image.width + x, right - x, uint8_t{1});
        found.push_back({double(x), double(y), double(right), double(bottom), 0.9, 0,
                         runs_of_mask(mask, image.height, image.width)});
      }
    return found;
  }

 private:
  std::vector<std::string> names_ = {"red"};
};

std::vector<std::array<double, 4>> sorted_boxes(const std::vector<FoundObject>& found) {
  std::vector<std::array<double, 4>> boxes;
  for (const FoundObject& o : found) boxes.push_back({o.top, o.left, o.right, o.bottom});
  std::sort(boxes.begin(), boxes.end());
  return boxes;
}

// A rectangle every 16 pixels, none larger than the overlap of tiles of 64; many cross seams.
Image rectangles(int width, int height, uint64_t seed) {
  Image image(width, height);
  RandomStream random(seed, "tiles");
  for (int y = 0; y + 16 <= height; y += 16)
    for (int x = 0; x + 16 <= width; x += 16) {
      const auto left = static_cast<int>(random.integer(0, 6)), top = static_cast<int>(random.integer(0, 6));
      const auto w = static_cast<int>(random.integer(3, 8)), h = static_cast<int>(random.integer(3, 8));
      for (int v = y + top; v < y + top + h; ++v)
        for (int u = x + left; u < x + left + w; ++u) image.row(v)[3 * u] = 255;
    }
  return image;
}

TEST(ObjectTiles, EveryObjectIsFoundOnceAndWholeWhereverSeamsLie) {
  RedRectangles finder;
  for (const auto& [width, height, tile] :
       {std::array{160, 160, 64}, std::array{208, 96, 64}, std::array{65, 64, 64}, std::array{170, 131, 80},
        std::array{48, 48, 64}}) {
    const Image image = rectangles(width, height, static_cast<uint64_t>(width));
    const auto whole = finder.find(image, 0, torch::kCPU, Precision::fp32),
               tiled = find_in_tiles(finder, image, tile, 0, torch::kCPU, Precision::fp32);
    EXPECT_EQ(sorted_boxes(tiled), sorted_boxes(whole)) << width << " x " << height << " in " << tile;
    for (const FoundObject& o : tiled) {
      EXPECT_EQ(o.mask.width, width);
      EXPECT_EQ(area_of(o.mask), int64_t((o.right - o.left) * (o.bottom - o.top)));
    }
  }
}

TEST(ObjectTiles, AnObjectLargerThanTheOverlapIsKeptByItsLargestPart) {
  Image image(128, 64);
  for (int y = 10; y < 50; ++y)
    for (int x = 20; x < 100; ++x) image.row(y)[3 * x] = 255;
  RedRectangles finder;
  const auto found = find_in_tiles(finder, image, 64, 0, torch::kCPU, Precision::fp32);
  ASSERT_FALSE(found.empty());
  EXPECT_LE(found.size(), 2u);  // no part is mostly inside another
}

}  // namespace
}  // namespace tessera::tasks
