#include "report/grid.h"

#include <gtest/gtest.h>

#include "report/report_testing.h"

#include "core/error.h"

namespace tessera::report {
namespace {

Image plain(int width, int height, uint8_t red, uint8_t green, uint8_t blue) {
  Image image(width, height);
  for (size_t i = 0; i < image.pixels.size(); i += 3)
    image.pixels[i] = red, image.pixels[i + 1] = green, image.pixels[i + 2] = blue;
  return image;
}

int64_t count_of(const Image& image, const Colour& colour) {
  int64_t count = 0;
  for (size_t i = 0; i < image.pixels.size(); i += 3)
    count += std::equal(colour.begin(), colour.end(), image.pixels.begin() + static_cast<ptrdiff_t>(i));
  return count;
}

TEST(ImageGrid, ShowsEveryPictureWhole) {
  const Image grid =
      image_grid({{plain(32, 32, 255, 0, 0), "", {0, 0, 0}}, {plain(10, 20, 0, 255, 0), "", {0, 0, 0}}},
                 {.columns = 2, .cell = 64, .gap = 4});
  EXPECT_EQ(grid.width, 4 + 2 * 68);
  EXPECT_EQ(grid.height, 4 + 68);
  EXPECT_EQ(count_of(grid, {255, 0, 0}), 64 * 64);               // doubled
  EXPECT_EQ(count_of(grid, {0, 255, 0}), 30 * 60);               // tripled, proportions kept
  EXPECT_EQ(count_of(grid, {0, 0, 0}), 4 * 65 + 2 * (31 + 61));  // frames around both
}

TEST(ImageGrid, ShrinksLargePictures) {
  const Image grid = image_grid({{plain(300, 100, 0, 0, 255), "", {0, 0, 0}}}, {.cell = 60, .gap = 2});
  EXPECT_EQ(count_of(grid, {0, 0, 255}), 60 * 20);
}

TEST(ImageGrid, TakesGrayscale) {
  Image gray(16, 16, 1);
  std::fill(gray.pixels.begin(), gray.pixels.end(), uint8_t{77});
  EXPECT_EQ(count_of(image_grid({{gray, "", {0, 0, 0}}}, {.cell = 16}), {77, 77, 77}), 16 * 16);
}

TEST(ImageGrid, CaptionsStayUnderTheirPicture) {
  GridOptions options{.columns = 2, .cell = 40, .gap = 10, .background = {255, 255, 255}, .ink = {1, 2, 3}};
  const Image grid = image_grid(
      {{plain(8, 8, 9, 9, 9), "a name that is far too long for its cell"}, {plain(8, 8, 9, 9, 9), ""}},
      options);
  EXPECT_GT(count_of(grid, options.ink), 40);
  for (int y = 0; y < grid.height; ++y)
    for (int x = 0; x < grid.width; ++x)
      if (std::equal(options.ink.begin(), options.ink.end(), grid.row(y) + 3 * x)) {
        EXPECT_GE(x, 10);
        EXPECT_LT(x, 50);
        EXPECT_GE(y, 10 + 40);
      }
}

TEST(ImageGrid, RefusesWhatItCannotDraw) {
  EXPECT_THROW(image_grid({}), Error);
  EXPECT_THROW(image_grid({{Image(), ""}}), Error);
  EXPECT_THROW(image_grid({{plain(4, 4, 0, 0, 0), ""}}, {.cell = 0}), Error);
}

TEST(DrawWords, EachPrintableCharacterHasAShapeOfItsOwn) {
  std::vector<std::vector<uint8_t>> seen;
  for (char c = '!'; c <= '~'; ++c) {
    Image image(kGlyphWidth, kGlyphHeight);
    draw_words(image, 0, 0, std::string_view(&c, 1), {255, 255, 255});
    EXPECT_EQ(std::count(seen.begin(), seen.end(), image.pixels), 0) << "'" << c << "' looks like another";
    EXPECT_GT(count_of(image, {255, 255, 255}), 0) << c;
    seen.push_back(image.pixels);
  }
}

TEST(DrawWords, IsCutAtTheBorderAndCountsSequencesOnce) {
  Image image = plain(20, 10, 0, 0, 0);
  draw_words(image, -3, -2, "WWWWWWWW", {255, 255, 255}, 2);
  draw_words(image, 1000, 1000, "x", {255, 255, 255});
  EXPECT_GT(count_of(image, {255, 255, 255}), 0);
  EXPECT_EQ(words_width("é"), words_width("e"));
  EXPECT_EQ(words_width(""), 0);
  EXPECT_EQ(words_width("ab", 2), 22);
}

TEST(SvgGrid, ShowsAnyScriptAndStaysWellFormed) {
  const std::vector<Cell> cells = {{Image(4, 3), "\u732b"}, {Image(300, 200), "<script>"}, {Image(9, 9), ""}};
  const std::string svg = svg_grid(cells, {.cell = 64});
  EXPECT_EQ(testing::XmlReader(svg).problem, "");
  EXPECT_NE(svg.find("\u732b"), std::string::npos);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_TRUE(has_glyphs("red fox (1)"));
  EXPECT_FALSE(has_glyphs("\u732b"));
}

}  // namespace
}  // namespace tessera::report
