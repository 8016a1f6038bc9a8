#include "data/base/geometry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/base/draws_testing.h"
#include "io/files/file.h"

namespace tessera::data {
namespace {

const std::string kComponents = std::string(TESSERA_TEST_DATA) + "/goldens/components/";

TEST(RandomResizedCrop, ChoosesTimmsBoxFromTheSameDraws) {
  const auto golden = nlohmann::json::parse(read_text(kComponents + "aug_random_resized_crop.json"));
  int compared = 0;
  for (const auto& c : golden["config"]["param_draws"]) {
    std::vector<RecordedDraw> recorded;
    for (const auto& d : c["draws"]) recorded.push_back({d[0], d[1], d[2], d[3]});
    ListedDraws draws(recorded);
    const Box box = random_resized_crop({c["h"], c["w"]}, c["scale"], c["ratio"], draws);
    EXPECT_EQ((std::vector<int>{box.top, box.left, box.height, box.width}),
              c["out_tlhw"].get<std::vector<int>>());
    EXPECT_TRUE(draws.used_up());
    ++compared;
  }
  EXPECT_GE(compared, 9);
}

TEST(RandomResizedCrop, StaysInsideAndCoversItsRange) {
  RandomStream stream(3, "crop");
  StreamDraws draws(stream);
  for (const Extent picture :
       {Extent{375, 500}, Extent{1, 1}, Extent{1, 900}, Extent{700, 2}, Extent{5, 4}}) {
    double least = 1, most = 0;
    for (int i = 0; i < 2000; ++i) {
      const Box box = random_resized_crop(picture, {0.08, 1}, {0.75, 4.0 / 3}, draws);
      ASSERT_GE(box.left, 0);
      ASSERT_GE(box.top, 0);
      ASSERT_GE(box.width, 1);
      ASSERT_GE(box.height, 1);
      ASSERT_LE(box.left + box.width, picture.width);
      ASSERT_LE(box.top + box.height, picture.height);
      const double share = static_cast<double>(box.width) * box.height / (picture.width * picture.height);
      least = std::min(least, share), most = std::max(most, share);
    }
    if (picture.height == 375) {
      EXPECT_LT(least, 0.09);
      EXPECT_GT(most, 0.9);
    }
  }
}

TEST(Geometry, ShortSideIsResizedAndTheLongOneTruncated) {
  const auto golden = nlohmann::json::parse(read_text(kComponents + "aug_eval_transform.json"));
  for (const auto& c : golden["config"]["resize_short_sizes"]) {
    const Extent got = resize_short_side({c["h"], c["w"]}, c["short"]);
    EXPECT_EQ((std::vector<int>{got.height, got.width}), c["out_hw"].get<std::vector<int>>());
  }
}

TEST(Geometry, RoundsHalvesToEven) {
  EXPECT_EQ(round_half_even(0.5), 0);
  EXPECT_EQ(round_half_even(1.5), 2);
  EXPECT_EQ(round_half_even(2.5), 2);
  EXPECT_EQ(round_half_even(2.51), 3);
}

TEST(Geometry, TheCentreIsCutOrPadded) {
  const Placement cut = centre({75, 102}, {72, 72});
  EXPECT_EQ(cut.window, (Box{15, 2, 72, 72}));  // round(1.5) is 2
  const Placement padded = centre({10, 21}, {15, 16});
  EXPECT_EQ(padded.window, (Box{2, 0, 16, 10}));  // round(2.5) is 2
  EXPECT_EQ(padded.left, 0);
  EXPECT_EQ(padded.top, 2);  // 5 rows missing: 2 above, 3 below
}

TEST(Geometry, ReflectsWithoutRepeatingTheEdge) {
  std::vector<int> got;
  for (int i = -5; i < 9; ++i) got.push_back(reflect(i, 4));
  EXPECT_EQ(got, (std::vector<int>{1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1, 2}));
  EXPECT_EQ(reflect(-7, 1), 0);
}

TEST(Geometry, CropModesAreNamed) {
  EXPECT_EQ(parse_crop_mode("border"), CropMode::border);
  EXPECT_THROW(parse_crop_mode("middle"), Error);
}

}  // namespace
}  // namespace tessera::data
