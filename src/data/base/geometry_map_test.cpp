#include "data/base/geometry_map.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "data/transforms/transform.h"

namespace tessera::data {
namespace {

// Every pixel of the image and of the mask encodes its position: the transform must treat both alike.
constexpr int kWidth = 61, kHeight = 47;

RawSample placed_sample() {
  Image picture(kWidth, kHeight), mask(kWidth, kHeight, 1);
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x) {
      picture.row(y)[3 * x] = static_cast<uint8_t>(4 * x);
      picture.row(y)[3 * x + 1] = static_cast<uint8_t>(5 * y);
      picture.row(y)[3 * x + 2] = 0;
      mask.row(y)[x] = static_cast<uint8_t>(4 * x);
    }
  Annotation annotation;
  annotation.mask = mask;
  annotation.instances = {{10, 12, 40, 30, 3}};
  return {"placed", picture, annotation};
}

Preprocess plain(int64_t size) {
  Preprocess p;
  p.size = size, p.interpolation = "bilinear";
  p.mean = {0, 0, 0}, p.std = {1, 1, 1};
  return p;
}

struct Output {
  std::vector<float> image;
  std::vector<uint8_t> mask;
  std::vector<float> boxes;
};

Output run(const Transform& transform, uint64_t seed) {
  const auto pixels = static_cast<size_t>(transform.fields()[1].numel());
  Output out{std::vector<float>(3 * pixels), std::vector<uint8_t>(pixels), {}};
  std::vector<std::byte> rows;
  const std::array slots = {Slot{reinterpret_cast<std::byte*>(out.image.data())},
                            Slot{reinterpret_cast<std::byte*>(out.mask.data())}, Slot{nullptr, &rows}};
  RandomStream random(seed, "test");
  transform.apply(placed_sample(), random, slots);
  out.boxes.resize(rows.size() / sizeof(float));
  std::copy(rows.begin(), rows.end(), reinterpret_cast<std::byte*>(out.boxes.data()));
  return out;
}

const JointFields kJoint = {.mask = true, .most_boxes = 4};

// The red channel and the mask contain the same numbers. They are equal except for interpolation, and
// except at edges where the image ends or is mirrored.
void expect_together(const Transform& transform, uint64_t seed, double share) {
  const Output out = run(transform, seed);
  size_t close = 0, inside = 0;
  for (size_t i = 0; i < out.mask.size(); ++i) {
    if (out.mask[i] == kIgnoredPixel) {
      EXPECT_LT(out.image[i], 0.01) << "nothing is shown where the mask is ignored";
      continue;
    }
    ++inside;
    close += std::abs(255 * out.image[i] - out.mask[i]) <= 9 ? 1 : 0;
  }
  EXPECT_GE(static_cast<double>(close), share * static_cast<double>(inside)) << "seed " << seed;
  EXPECT_GT(inside, 0u);
}

TEST(JointTransform, MasksMoveWithTheImage) {
  for (const char* crop : {"random_resized", "padded", "center"})
    for (const char* padding : {"constant", "reflect"}) {
      AugmentConfig augment;
      augment.crop = crop, augment.padding_mode = padding;
      augment.scale = {0.2, 1.0};
      const auto transform = make_train_transform(plain(32), augment, kJoint);
      for (uint64_t seed = 0; seed < 20; ++seed) expect_together(*transform, seed, 0.95);
    }
  for (const char* mode : {"center", "squash"}) {
    Preprocess p = plain(40);
    p.crop_mode = mode;
    expect_together(*make_eval_transform(p, kJoint), 0, 0.95);
  }
}

TEST(JointTransform, TheBorderOfAWholePictureIsIgnored) {
  Preprocess p = plain(40);
  p.crop_mode = "border", p.crop = 1;
  const Output out = run(*make_eval_transform(p, kJoint), 0);
  EXPECT_EQ(out.mask.front(), kIgnoredPixel);
  EXPECT_NE(out.mask[40 * 20 + 20], kIgnoredPixel);
}

// A box covers the same pixels as before: its mapped edges match the edges in the image.
TEST(JointTransform, BoxesMoveWithTheImage) {
  AugmentConfig augment;
  augment.scale = {0.3, 1.0};
  const auto transform = make_train_transform(plain(48), augment, kJoint);
  int seen = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Output out = run(*transform, seed);
    if (out.boxes.empty()) continue;
    ++seen;
    ASSERT_EQ(out.boxes.size(), 5u);
    EXPECT_EQ(out.boxes[4], 3);
    for (int y = 0; y < 48; ++y)
      for (int x = 0; x < 48; ++x) {
        const auto at = static_cast<size_t>(48 * y + x);
        const double source_x = 255 * out.image[at] / 4, source_y = 255 * out.image[48 * 48 + at] / 5;
        const bool in_source = source_x > 11 && source_x < 38 && source_y > 13 && source_y < 28;
        const bool in_box = x + 0.5 >= out.boxes[0] && x + 0.5 <= out.boxes[2] && y + 0.5 >= out.boxes[1] &&
                            y + 0.5 <= out.boxes[3];
        if (in_source) {
          EXPECT_TRUE(in_box) << seed << " at " << x << ", " << y;
        }
        if (in_box) {
          EXPECT_TRUE(source_x > 7 && source_x < 43 && source_y > 9 && source_y < 33) << seed;
        }
      }
  }
  EXPECT_GT(seen, 20);
}

TEST(JointTransform, WhatIsLeftOfABoxDecidesWhetherItStays) {
  const AxisMap axis{
      .source_from = 0, .source_to = 10, .resized = 10, .start = 5, .size = 5, .source_size = 10};
  const GeometryMap map{axis, axis};
  const std::vector<Instance> boxes = {{4, 4, 6, 6, 0}, {0, 0, 5, 5, 1}, {6, 6, 8, 8, 2}};
  EXPECT_EQ(map_instances(boxes, map, 0).size(), 2u);
  const auto kept = map_instances(boxes, map, 0.5);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].label, 2);
  EXPECT_EQ(kept[0].left, 1);
  EXPECT_EQ(kept[0].bottom, 3);
}

TEST(JointTransform, WrongRequestsAreRefused) {
  AugmentConfig augment;
  augment.auto_augment = "rand-m9";
  EXPECT_THROW(make_train_transform(plain(32), augment, kJoint), Error);
  const auto transform = make_eval_transform(plain(32), {.mask = true});
  RawSample sample = placed_sample();
  std::vector<float> image(3 * 32 * 32);
  std::vector<uint8_t> mask(32 * 32);
  const std::array slots = {Slot{reinterpret_cast<std::byte*>(image.data())},
                            Slot{reinterpret_cast<std::byte*>(mask.data())}};
  RandomStream random(0, "test");
  const auto error_for = [&] {
    try {
      transform->apply(sample, random, slots);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  sample.annotation.mask = Image(kWidth - 1, kHeight, 1);
  EXPECT_EQ(error_for(), "placed: a mask of 60x47 with 1 channels, must be 61x47 with 1");
  sample.annotation.mask.reset();
  EXPECT_EQ(error_for(), "placed: has no mask");
}

}  // namespace
}  // namespace tessera::data
