#include "report/grid.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "data/sources/annotated_source.h"
#include "data/transforms/mask_labels.h"
#include "data/transforms/transform.h"
#include "io/images/image.h"

namespace tessera::report {
namespace {

const std::vector<std::string> kClasses = {"cat", "dog", "a class with a name of many words"};

bool same(const Image& a, const Image& b, int x, int y) {
  return std::equal(a.row(y) + 3 * x, a.row(y) + 3 * x + 3, b.row(y) + 3 * x);
}

int64_t differing(const Image& a, const Image& b, int rows) {
  int64_t count = 0;
  for (int y = 0; y < rows; ++y)
    for (int x = 0; x < a.width; ++x) count += same(a, b, x, y) ? 0 : 1;
  return count;
}

// The image keeps its place; rows are added only for the legend.
TEST(OverlayLabels, AnImageWithoutObjectsIsUnchanged) {
  const Image image(80, 60, 3);
  const Image out = labelled_objects(image, {}, {}, kClasses);
  EXPECT_EQ(out.height, image.height);
  EXPECT_EQ(out.pixels, image.pixels);
}

TEST(OverlayLabels, LabelsOfObjectsAreInsideTheImage) {
  const Image image(120, 60, 3);
  for (const double left : {-5.0, 0.0, 40.0, 110.0})
    for (const double top : {-5.0, 0.0, 30.0, 55.0}) {
      const std::vector<data::DrawnObject> objects = {{left, top, left + 30, top + 20, 1, nullptr}};
      const Image plain = data::draw_objects(image, objects),
                  out = labelled_objects(image, objects, {0.973}, kClasses);
      EXPECT_EQ(out.width, image.width);
      EXPECT_EQ(out.height, image.height + 11);  // one line of the legend
      // A label "dog 97 %" of 11 rows, whole at each place; some of its pixels may be the box's.
      const int64_t label = 11 * (8 * 6 - 1 + 4);
      const int64_t changed = differing(plain, out, image.height);
      EXPECT_LE(changed, label) << left << " " << top;
      EXPECT_GE(changed, label * 3 / 4) << left << " " << top;
    }
}

TEST(OverlayLabels, LegendsHaveTheClassesThatOccurAndWrap) {
  Image image(60, 40, 3), mask(60, 40, 1);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{90});
  for (int x = 0; x < 30; ++x) mask.row(5)[x] = 2;
  for (int x = 0; x < 60; ++x) mask.row(39)[x] = data::kIgnoredPixel;
  const Image plain = data::overlay_mask(image, mask), out = labelled_mask(image, mask, kClasses);
  EXPECT_EQ(differing(plain, out, image.height), 0);
  EXPECT_EQ(out.height, image.height + 2 * 11);  // the long name has a line of its own, and is cut
  for (const int64_t c : {0, 2}) {
    const auto colour = data::mask_colour(c);
    const int y = image.height + (c == 0 ? 0 : 11) + 5;
    EXPECT_TRUE(std::equal(colour.begin(), colour.end(), out.row(y) + 3 * 5)) << c;
  }
}

TEST(OverlayLabels, LettersGrowWithTheImage) {
  const Image image(960, 720, 3);
  const Image out = labelled_objects(image, {{100, 100, 200, 200, 0, nullptr}}, {0.5}, kClasses);
  EXPECT_EQ(out.height, image.height + 3 * 11);
  EXPECT_THROW(labelled_objects(image, {}, {0.5}, kClasses), Error);
}

}  // namespace
}  // namespace tessera::report
