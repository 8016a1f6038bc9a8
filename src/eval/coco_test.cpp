// Counts of hand-made cases; the numbers of COCO's own tool are goldens (tests/parity).
#include "eval/coco.h"

#include <gtest/gtest.h>

namespace tessera::eval {
namespace {

CocoObject truth(int64_t image, RunBox box, int64_t category = 1) {
  return {.image = image, .category = category, .box = box, .area = box.width * box.height};
}
CocoObject found(int64_t image, RunBox box, double score, int64_t category = 1) {
  CocoObject object = truth(image, box, category);
  object.score = score;
  return object;
}
CocoSettings settings(std::vector<int64_t> images = {1, 2}, std::vector<int64_t> categories = {1}) {
  return {.images = std::move(images), .categories = std::move(categories)};
}

TEST(Coco, WhatIsFoundExactlyCountsWhole) {
  const std::vector<CocoObject> truths{truth(1, {0, 0, 40, 40}), truth(2, {5, 5, 50, 50})};
  const auto scores =
      evaluate_coco(truths, {found(1, {0, 0, 40, 40}, 0.9), found(2, {5, 5, 50, 50}, 0.8)}, settings());
  EXPECT_DOUBLE_EQ(scores.precision(), 1);
  EXPECT_DOUBLE_EQ(scores.recall(), 1);
  EXPECT_EQ(scores.precision(-1, 1), -1);  // no small objects
  EXPECT_EQ(scores.truths(0), 2);
}

TEST(Coco, AMissAtTheTopHalvesPrecision) {
  const auto scores =
      evaluate_coco({truth(1, {0, 0, 40, 40})},
                    {found(1, {100, 100, 10, 10}, 0.9), found(1, {0, 0, 40, 40}, 0.5)}, settings());
  EXPECT_NEAR(scores.precision(0), 0.5, 1e-12);
  EXPECT_EQ(scores.recall(0, -1, 0), 0);  // only the first detection
  EXPECT_EQ(scores.recall(), 1);
}

TEST(Coco, ASecondDetectionOfOneObjectIsAMiss) {
  const auto twice = {found(1, {0, 0, 40, 40}, 0.9), found(1, {1, 0, 40, 40}, 0.8)};
  const CocoMatches m = match_coco({truth(1, {0, 0, 40, 40})}, twice, settings(), 1, 1, 0.5);
  EXPECT_EQ(m.of_detection, (std::vector<int64_t>{0, -1}));
  EXPECT_EQ(m.of_truth, (std::vector<int64_t>{0}));
}

TEST(Coco, CrowdsTakeAnyNumberAndCountNothing) {
  CocoObject crowd = truth(1, {0, 0, 100, 100});
  crowd.crowd = true;
  const std::vector<CocoObject> inside{found(1, {0, 0, 10, 10}, 0.9), found(1, {20, 20, 10, 10}, 0.8)};
  EXPECT_EQ(evaluate_coco({crowd}, inside, settings()).precision(), -1);
  const auto scores = evaluate_coco({crowd, truth(1, {200, 0, 20, 20})},
                                    {inside[0], inside[1], found(1, {200, 0, 20, 20}, 0.1)}, settings());
  EXPECT_DOUBLE_EQ(scores.precision(), 1);
}

TEST(Coco, NothingAtAllIsMinusOneAndOtherClassesDoNotCount) {
  EXPECT_EQ(evaluate_coco({}, {}, settings()).precision(), -1);
  const auto scores =
      evaluate_coco({truth(1, {0, 0, 40, 40})}, {found(1, {0, 0, 40, 40}, 0.5, 7)}, settings());
  EXPECT_EQ(scores.precision(), 0);
  CocoSettings together = settings({1}, {1, 7});
  together.by_class = false;
  EXPECT_DOUBLE_EQ(
      evaluate_coco({truth(1, {0, 0, 40, 40})}, {found(1, {0, 0, 40, 40}, 0.5, 7)}, together).precision(), 1);
}

TEST(Coco, MasksAreComparedByPixels) {
  CocoObject square = truth(1, {0, 0, 4, 4});
  square.mask = std::make_shared<RunLengths>(runs_of_box({0, 0, 4, 4}, 10, 10));
  CocoObject half = found(1, {0, 0, 4, 4}, 0.7);
  half.mask = std::make_shared<RunLengths>(runs_of_box({0, 0, 2, 4}, 10, 10));
  CocoSettings masks = settings({1});
  masks.overlap = Overlap::masks;
  EXPECT_EQ(coco_overlaps({square}, {half}, masks, 1, 1)[0][0], 0.5);
  EXPECT_EQ(coco_overlaps({square}, {half}, settings({1}), 1, 1)[0][0], 1);
}

}  // namespace
}  // namespace tessera::eval
