#include "io/images/index_png.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/random.h"

namespace tessera {
namespace {

Image random_mask(int width, int height, int values) {
  RandomStream random(1, "mask", static_cast<uint64_t>(width), static_cast<uint64_t>(values));
  Image mask(width, height, 1);
  for (uint8_t& value : mask.pixels)
    value = static_cast<uint8_t>(random.below(static_cast<uint64_t>(values)));
  return mask;
}

std::vector<std::array<uint8_t, 3>> palette_of(int colours) {
  std::vector<std::array<uint8_t, 3>> palette;
  for (int i = 0; i < colours; ++i)
    palette.push_back({static_cast<uint8_t>(255 - i), static_cast<uint8_t>(i), 7});
  return palette;
}

TEST(IndexPng, IndicesOfAPaletteComeBack) {
  for (const auto& [width, height, values] : {std::tuple(1, 1, 1), {7, 3, 2}, {33, 19, 17}, {20, 40, 256}}) {
    const Image mask = random_mask(width, height, values);
    const IndexImage read = decode_index_png(encode_index_png(mask, palette_of(values)), "m.png");
    ASSERT_EQ(read.width, width);
    ASSERT_EQ(read.height, height);
    EXPECT_TRUE(std::equal(read.values.begin(), read.values.end(), mask.pixels.begin()));
  }
}

TEST(IndexPng, ViewersSeeTheColours) {
  const Image mask = random_mask(9, 5, 4);
  const auto palette = palette_of(4);
  const Image seen = decode_image(encode_index_png(mask, palette), "m.png");
  for (size_t i = 0; i < mask.pixels.size(); ++i) EXPECT_EQ(seen.pixels[3 * i], palette[mask.pixels[i]][0]);
}

TEST(IndexPng, GrayIsTakenAsItIs) {
  const Image mask = random_mask(11, 6, 256);
  const IndexImage read = decode_index_png(encode_png(mask), "m.png");
  EXPECT_TRUE(std::equal(read.values.begin(), read.values.end(), mask.pixels.begin()));
}

// As OpenCV writes a mask that was read as an image.
TEST(IndexPng, EqualColoursAreTheirNumber) {
  const Image mask = random_mask(7, 5, 256);
  Image three(7, 5);
  for (size_t i = 0; i < three.pixels.size(); ++i) three.pixels[i] = mask.pixels[i / 3];
  const IndexImage read = decode_index_png(encode_png(three), "m.png");
  EXPECT_TRUE(std::equal(read.values.begin(), read.values.end(), mask.pixels.begin(), mask.pixels.end()));
}

TEST(IndexPng, OtherFilesAreRefusedByName) {
  const auto message = [](const std::vector<std::byte>& bytes) -> std::string {
    try {
      decode_index_png(bytes, "m.png", 100);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Image colours(4, 4);
  colours.pixels[5] = 1;
  EXPECT_NE(message(encode_png(colours)).find("colours"), std::string::npos);
  EXPECT_NE(message(encode_jpeg(Image(4, 4))).find("jpeg"), std::string::npos);
  EXPECT_NE(message(encode_png(random_mask(20, 20, 3))).find("20x20"), std::string::npos);
  std::vector<std::byte> cut = encode_png(random_mask(9, 9, 200));
  cut.resize(cut.size() - 30);
  EXPECT_NE(message(cut).find("m.png: "), std::string::npos);
  EXPECT_THROW(encode_index_png(random_mask(4, 4, 9), palette_of(1)), Error);
}

}  // namespace
}  // namespace tessera
