#include "io/images/run_lengths.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/random.h"

namespace tessera {
namespace {

std::vector<uint8_t> random_mask(RandomStream& random, int64_t height, int64_t width) {
  std::vector<uint8_t> mask(static_cast<size_t>(height * width));
  uint8_t value = 0;
  for (uint8_t& pixel : mask) {
    if (random.chance(0.2)) value = !value;
    pixel = value;
  }
  return mask;
}

TEST(RunLengths, MasksComeBack) {
  RandomStream random(1, "runs");
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {9, 1}, {7, 5}, {40, 63}})
    for (int round = 0; round < 20; ++round) {
      const auto mask = random_mask(random, height, width);
      const RunLengths runs = runs_of_mask(mask, height, width);
      EXPECT_EQ(mask_of_runs(runs), mask);
      EXPECT_EQ(parse_runs(compress_runs(runs), height, width), runs);
      EXPECT_EQ(area_of(runs), std::count(mask.begin(), mask.end(), 1));
      const RunBox box = bounds_of(runs);
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x)
          if (mask[static_cast<size_t>(y * width + x)]) {
            EXPECT_TRUE(x >= box.left && x < box.left + box.width && y >= box.top &&
                        y < box.top + box.height);
          }
    }
}

TEST(RunLengths, OverlapIsCountedByPixels) {
  RandomStream random(2, "runs");
  for (int round = 0; round < 30; ++round) {
    const auto a = random_mask(random, 9, 13), b = random_mask(random, 9, 13);
    int64_t both = 0, any = 0, own = 0;
    for (size_t i = 0; i < a.size(); ++i) both += a[i] & b[i], any += a[i] | b[i], own += a[i];
    const RunLengths masks[] = {runs_of_mask(a, 9, 13), runs_of_mask(b, 9, 13)};
    EXPECT_DOUBLE_EQ(overlap_of(masks[0], masks[1]),
                     both ? static_cast<double>(both) / static_cast<double>(any) : 0);
    EXPECT_DOUBLE_EQ(overlap_of(masks[0], masks[1], true),
                     both ? static_cast<double>(both) / static_cast<double>(own) : 0);
    EXPECT_EQ(area_of(merge_runs(masks)), any);
    EXPECT_EQ(area_of(merge_runs(masks, true)), both);
  }
  EXPECT_EQ(overlap_of(RunLengths{2, 2, {4}}, RunLengths{2, 3, {6}}), -1);
}

TEST(RunLengths, BoxesOfWholePixelsAreExact) {
  const RunLengths runs = runs_of_box({3, 2, 4, 5}, 12, 10);
  EXPECT_EQ(area_of(runs), 20);
  const RunBox box = bounds_of(runs);
  EXPECT_EQ(box.left, 3);
  EXPECT_EQ(box.top, 2);
  EXPECT_EQ(box.width, 4);
  EXPECT_EQ(box.height, 5);
  EXPECT_EQ(area_of(runs_of_box({-5, -5, 100, 100}, 12, 10)), 120);
}

TEST(RunLengths, RefusesWhatDoesNotFillItsMask) {
  EXPECT_THROW(parse_runs("0`0", 4, 5), Error);              // 16 pixels of 20
  EXPECT_THROW(parse_runs("0`0", 3, 5), Error);              // 16 of 15
  EXPECT_THROW(parse_runs("\x01", 4, 4), Error);             // invalid character
  EXPECT_THROW(parse_runs("P", 4, 4), Error);                // ends within a number
  EXPECT_THROW(parse_runs("oooooooooooooo0", 4, 4), Error);  // too many digits
  EXPECT_THROW(checked_runs({3, 4}, 4, 4), Error);
  EXPECT_THROW(runs_of_mask(std::vector<uint8_t>(7), 2, 4), Error);
  EXPECT_THROW(runs_of_polygon(std::vector<double>{0, 0, 1e9, 0, 5, 5}, 10, 10), Error);
  EXPECT_EQ(area_of(runs_of_polygons({}, 5, 5)), 0);
}

}  // namespace
}  // namespace tessera
