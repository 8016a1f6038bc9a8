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

std::vector<std::byte> little_endian(std::initializer_list<std::pair<uint32_t, int>> numbers) {
  std::vector<std::byte> out;
  for (const auto& [number, size] : numbers)
    for (int i = 0; i < size; ++i) out.push_back(static_cast<std::byte>(number >> 8 * i));
  return out;
}

// A TIFF of 4x1 pixels with these bytes and tags.
std::vector<std::byte> tiff_of(std::initializer_list<uint8_t> pixels, uint32_t bits, uint32_t photometric) {
  const auto count = static_cast<uint32_t>(pixels.size());
  std::vector<std::byte> out = little_endian({{0x4949, 2}, {42, 2}, {8, 4}, {8, 2}});
  for (const auto& [tag, value] : {std::pair<uint32_t, uint32_t>{256, 4},
                                   {257, 1},
                                   {258, bits},
                                   {259, 1},
                                   {262, photometric},
                                   {273, 110},
                                   {278, 1},
                                   {279, count}})
    for (const std::byte byte : little_endian({{tag, 2}, {4, 2}, {1, 4}, {value, 4}})) out.push_back(byte);
  out.resize(110);
  for (const uint8_t pixel : pixels) out.push_back(static_cast<std::byte>(pixel));
  return out;
}

// A BMP of 4x1 pixels with two colours.
std::vector<std::byte> bmp_of(std::initializer_list<uint8_t> pixels, uint32_t bits) {
  std::vector<std::byte> out = little_endian({{0x4D42, 2},
                                              {66, 4},
                                              {0, 4},
                                              {62, 4},
                                              {40, 4},
                                              {4, 4},
                                              {1, 4},
                                              {1, 2},
                                              {bits, 2},
                                              {0, 4},
                                              {4, 4},
                                              {0, 4},
                                              {0, 4},
                                              {2, 4},
                                              {0, 4},
                                              {0x800000, 4},
                                              {0x00FF00, 4}});
  for (const uint8_t pixel : pixels) out.push_back(static_cast<std::byte>(pixel));
  out.resize(66);
  return out;
}

TEST(IndexImage, NumbersOfTiffAndBmpAreTakenAsTheyAre) {
  using Values = std::vector<uint16_t>;
  const auto values = [](const std::vector<std::byte>& bytes) {
    return decode_index_image(bytes, "m").values;
  };
  EXPECT_EQ(values(tiff_of({0, 1, 2, 255}, 8, 1)), (Values{0, 1, 2, 255}));
  EXPECT_EQ(values(tiff_of({0, 1, 2, 255}, 8, 0)), (Values{255, 254, 253, 0}));  // white is 0, as in Pillow
  EXPECT_EQ(values(tiff_of({0, 0, 7, 1, 1, 0, 2, 0}, 16, 1)), (Values{0, 263, 1, 2}));
  EXPECT_EQ(values(tiff_of({0b01010000}, 1, 1)), (Values{0, 1, 0, 1}));
  EXPECT_EQ(values(bmp_of({0, 1, 1, 0}, 8)), (Values{0, 1, 1, 0}));
  EXPECT_EQ(values(bmp_of({0b01010000}, 1)), (Values{0, 1, 0, 1}));
  const Image mask = random_mask(7, 5, 256);
  const IndexImage png = decode_index_image(encode_png(mask), "m.png");
  EXPECT_TRUE(std::equal(png.values.begin(), png.values.end(), mask.pixels.begin(), mask.pixels.end()));
  try {
    values(encode_jpeg(Image(4, 4)));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "m: is a JPEG, and its compression changes numbers; a mask must be a PNG, TIFF or BMP");
  }
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
