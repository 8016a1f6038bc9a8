// Gray of every depth: the upper 8 bits, or fewer bits scaled up.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/files/file.h"
#include "io/files/io_testing.h"
#include "io/images/image.h"
#include "io/images/index_png.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::byte>;
const std::string kPictures = std::string(TESSERA_TEST_DATA) + "/pictures";

// A TIFF of one row of gray numbers: a header, the packed row, the directory.
Bytes gray_tiff(const std::vector<uint32_t>& values, int bits, int photometric, int format = 1,
                int kind = 0) {
  Bytes row;
  uint64_t pending = 0;
  int filled = 0;
  for (const uint32_t value : values) {
    if (bits >= 16) {
      for (int shift = 0; shift < bits; shift += 8) row.push_back(static_cast<std::byte>(value >> shift));
      continue;
    }
    pending = pending << bits | value;
    for (filled += bits; filled >= 8; filled -= 8)
      row.push_back(static_cast<std::byte>(pending >> (filled - 8)));
  }
  if (filled > 0) row.push_back(static_cast<std::byte>(pending << (8 - filled)));
  while (row.size() % 2 != 0) row.push_back(std::byte{0});
  Bytes tiff;
  const auto put = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) tiff.push_back(static_cast<std::byte>(value >> (8 * i)));
  };
  put('I' | 'I' << 8, 2), put(42, 2), put(static_cast<uint32_t>(8 + row.size()), 4);
  tiff.insert(tiff.end(), row.begin(), row.end());
  const std::pair<int, uint32_t> entries[] = {{254, kind}, {256, values.size()}, {257, 1},     {258, bits},
                                              {259, 1},    {262, photometric},   {273, 8},     {277, 1},
                                              {278, 1},    {279, row.size()},    {339, format}};
  put(std::size(entries), 2);
  for (const auto& [tag, value] : entries)
    put(static_cast<uint32_t>(tag), 2), put(4, 2), put(1, 4), put(value, 4);
  put(0, 4);
  return tiff;
}

// The darkest, some between, the lightest: 8 bits are the upper ones, or fewer bits scaled up.
TEST(ImageDecode, GrayOfEveryDepthIsScaled) {
  for (const int bits : {1, 2, 4, 8, 9, 10, 12, 14, 16, 32}) {
    const uint32_t most = bits == 32 ? UINT32_MAX : (1u << bits) - 1;
    const std::vector<uint32_t> values = {0, most / 3, most / 2, most - most / 8, most};
    for (const int black_is_zero : {1, 0}) {
      const Bytes tiff = gray_tiff(values, bits, black_is_zero);
      const Image image = decode_image(tiff, "g.tif");
      ASSERT_EQ(image.width, std::ssize(values));
      for (size_t x = 0; x < values.size(); ++x) {
        const uint32_t scaled = bits < 8 ? values[x] * 255 / most : values[x] >> (bits - 8);
        const auto want = static_cast<uint8_t>(black_is_zero ? scaled : 255 - scaled);
        for (size_t c = 0; c < 3; ++c) EXPECT_EQ(image.pixels[3 * x + c], want) << bits << " bits, " << x;
      }
    }
  }
  EXPECT_EQ(error_of([] {
              decode_image(gray_tiff({0, 1}, 32, 1, 3), "f.tif");
            }),
            "f.tif: a TIFF of 32-bit floating-point numbers has no range that is white: scale it to unsigned "
            "numbers of 8 or 16 bits");
  EXPECT_NE(error_of([] {
              decode_image(gray_tiff({0, 1}, 16, 1, 2), "s.tif");
            }).find("16-bit signed"),
            std::string::npos);
}

// A camera's raw file (DNG, NEF) is a TIFF whose first page is a small image of the photograph.
TEST(ImageDecode, APreviewIsNoImage) {
  EXPECT_EQ(error_of([] {
              decode_image(gray_tiff({0, 255}, 8, 1, 1, 1), "photo.dng");
            }),
            "photo.dng: the first page of the TIFF is a preview, as in a camera's raw file: convert it to "
            "JPEG or PNG");
}

TEST(ImageDecode, GrayOfSixteenBitsInAPngIsScaled) {
  for (const char* name : {"adam7_gray16.png", "gray16_key.png"}) {
    const Bytes bytes = read_file(kPictures + "/" + name);
    const IndexImage stored = decode_index_png(bytes, name);
    const Image image = decode_image(bytes, name);
    for (size_t i = 0; i < stored.values.size(); ++i)
      for (size_t c = 0; c < 3; ++c) ASSERT_EQ(image.pixels[3 * i + c], stored.values[i] >> 8) << name;
  }
}

}  // namespace
}  // namespace tessera
