#include "eval/segmentation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/random.h"

namespace tessera::eval {
namespace {

TEST(Segmentation, SharesFollowFromCountsOfPixels) {
  SegmentationMeter meter(3);
  //                      right 0, 0 as 1, right 1, ignored, 1 as 0
  const std::vector<uint8_t> labels = {0, 0, 1, 255, 1}, predicted = {0, 1, 1, 2, 0};
  meter.add(predicted, labels);
  const SegmentationScores scores = meter.scores();
  EXPECT_DOUBLE_EQ(scores.classes[0].iou, 1.0 / 3);
  EXPECT_DOUBLE_EQ(scores.classes[0].dice, 0.5);
  EXPECT_DOUBLE_EQ(scores.mean_iou, 1.0 / 3);  // class 2 occurs nowhere: the ignored pixel does not count
  EXPECT_TRUE(std::isnan(scores.classes[2].iou));
  EXPECT_DOUBLE_EQ(scores.pixel_accuracy, 0.5);
}

TEST(Segmentation, PartsAddUpToTheWhole) {
  RandomStream random(1, "masks");
  std::vector<uint8_t> labels(1000), predicted(1000);
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = random.chance(0.1) ? uint8_t{255} : static_cast<uint8_t>(random.below(5));
    predicted[i] = static_cast<uint8_t>(random.below(5));
  }
  SegmentationMeter whole(5), first(5), second(5);
  const std::span<const uint8_t> p = predicted, l = labels;
  whole.add(p, l);
  first.add(p.first(300), l.first(300));
  second.add(p.subspan(300), l.subspan(300));
  first.add_counts(second.confusion());
  EXPECT_EQ(first.confusion(), whole.confusion());
}

TEST(Segmentation, RefusesWhatIsNoClass) {
  SegmentationMeter meter(3);
  const std::vector<uint8_t> three = {3}, one = {1}, two = {1, 1};
  EXPECT_THROW(meter.add(one, three), Error);
  EXPECT_THROW(meter.add(three, one), Error);
  EXPECT_THROW(meter.add(one, two), Error);
}

TEST(Segmentation, WindowsCoverEveryPixelAndStayInside) {
  RandomStream random(2, "windows");
  for (int round = 0; round < 200; ++round) {
    const int height = static_cast<int>(random.integer(1, 60)),
              width = static_cast<int>(random.integer(1, 60));
    const int crop = static_cast<int>(random.integer(1, 40)),
              stride = static_cast<int>(random.integer(1, crop));
    const int unit = std::min(stride & -stride, 32);  // the stride's largest factor 2^k, at most 32
    for (const bool aligned : {false, true}) {
      std::vector<int> seen(static_cast<size_t>(height * width));
      Window before{.top = -1};
      for (const Window& window : aligned ? aligned_windows(height, width, crop, stride, unit)
                                          : sliding_windows(height, width, crop, stride)) {
        ASSERT_TRUE(window.top > before.top || (window.top == before.top && window.left > before.left));
        before = window;
        ASSERT_TRUE(window.top >= 0 && window.left >= 0 && window.bottom <= height && window.right <= width);
        for (const auto& [size, side] :
             {std::pair(window.bottom - window.top, height), {window.right - window.left, width}}) {
          ASSERT_GE(size, std::min(crop, side));
          ASSERT_LT(size, std::min(crop, side) + (aligned ? unit : 1));
        }
        ASSERT_TRUE(!aligned || (window.top % unit == 0 && window.left % unit == 0));
        for (int y = window.top; y < window.bottom; ++y)
          for (int x = window.left; x < window.right; ++x) ++seen[static_cast<size_t>(y * width + x)];
      }
      for (const int count : seen) ASSERT_GT(count, 0);
    }
  }
}

}  // namespace
}  // namespace tessera::eval
