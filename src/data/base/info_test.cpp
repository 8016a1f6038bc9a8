#include "data/base/info.h"

#include <gtest/gtest.h>

#include "core/threads.h"
#include "data/base/data_testing.h"

namespace tessera::data {
namespace {

std::string png(int width, int height, uint8_t value) {
  Image image(width, height);
  std::fill(image.pixels.begin(), image.pixels.end(), value);
  const auto bytes = encode_png(image);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(PixelStatistics, AHugeImageCountsNoMoreThanASmallOne) {
  const TemporaryFolder folder;
  for (int i = 0; i < 9; ++i) folder.write("a/" + std::to_string(i) + ".png", png(8, 6, 0));
  folder.write("a/huge.png", png(1000, 900, 255));
  const auto source = open_source({.path = folder.path(""), .val_share = 0}, Split::train);
  const PixelStatistics pixels = pixel_statistics(*source, 100);
  EXPECT_EQ(pixels.images, 10);
  EXPECT_NEAR(pixels.mean[0], 0.1, 1e-6);
  EXPECT_NEAR(pixels.std[2], 0.3, 1e-6);  // sqrt(0.1 - 0.01)
  EXPECT_EQ(pixels.width.median, 8);
  EXPECT_EQ(pixels.height.median, 6);
  EXPECT_EQ(pixels.width.most, 1000);
}

TEST(PixelStatistics, DoNotDependOnThreads) {
  const auto source = open_source({.path = "shapes:train=200,val=10"}, Split::train);
  set_num_threads(1);
  const PixelStatistics one = pixel_statistics(*source, 100);
  set_num_threads(4);
  const PixelStatistics four = pixel_statistics(*source, 100);
  set_num_threads(0);
  EXPECT_EQ(one.mean, four.mean);
  EXPECT_EQ(one.std, four.std);
}

}  // namespace
}  // namespace tessera::data
