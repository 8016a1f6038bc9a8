#include "io/images/image.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "core/text.h"
#include "io/files/io_testing.h"
#include "io/files/path.h"
#include "io/images/image_testing.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::byte>;

TEST(ImageWrite, TheNameSaysTheKind) {
  Image image(20, 10);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 7);
  for (const auto& [name, format] :
       {std::pair{"a.png", "png"}, {"a.JPG", "jpeg"}, {"b.c/a.jpeg", "jpeg"}, {"a.webp", "webp"}}) {
    EXPECT_TRUE(is_image_name(name));
    const auto bytes = encode_image(image, name);
    EXPECT_EQ(image_info(bytes, name).format, format);
    if (std::string_view(format) == "jpeg") continue;
    EXPECT_EQ(decode_image(bytes, name).pixels, image.pixels) << name;
  }
  EXPECT_FALSE(is_image_name("a.gif"));
  EXPECT_FALSE(is_image_name("png"));
  EXPECT_EQ(error_of([&] { encode_image(image, "a.gif"); }),
            "a.gif: the name must end in .png, .jpg, .jpeg or .webp");
}

TEST(ImageWrite, ATextStandsInsideOfAPng) {
  Image image(5, 3);
  const auto plain = encode_image(image, "a.png");
  const std::string words = "{\"seed\": 7, \"class\": \"\xc3\xa4\"}";
  const auto bytes = with_png_text(plain, "tessera", words);
  EXPECT_EQ(png_text(bytes, "tessera"), words);
  EXPECT_EQ(png_text(bytes, "other"), "");
  EXPECT_EQ(png_text(plain, "tessera"), "");
  EXPECT_EQ(decode_image(bytes, "a.png").pixels, image.pixels);
  // A truncated file has none.
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_EQ(png_text({bytes.data(), size}, "tessera"), "");
}

TEST(ImageEncode, PngKeepsEveryPixel) {
  for (const int channels : {1, 3}) {
    const Image image = scene(37, 21, channels, 6);
    const Image back = decode_image(encode_png(image), "a.png");
    ASSERT_EQ(back.channels, 3);
    for (int y = 0; y < 21; ++y)
      for (int x = 0; x < 37; ++x)
        for (int c = 0; c < 3; ++c)
          ASSERT_EQ(back.row(y)[3 * x + c], image.row(y)[x * channels + c % channels]);
  }
}

TEST(ImageEncode, JpegIsCloseAndSubsampled) {
  const Image image = scene(64, 48, 3, 7);
  const Bytes good = encode_jpeg(image, 95), poor = encode_jpeg(image, 20);
  EXPECT_LT(poor.size(), good.size());
  const Image back = decode_image(good, "a.jpg");
  double error = 0;
  for (size_t i = 0; i < image.pixels.size(); ++i) error += std::abs(image.pixels[i] - back.pixels[i]);
  EXPECT_LT(error / static_cast<double>(image.pixels.size()), 12);  // chroma noise is lost
  const Bytes gray = encode_jpeg(scene(64, 48, 1, 7));
  EXPECT_EQ(decode_image(gray, "g.jpg").channels, 3);
  EXPECT_NE(error_of([&] { encode_jpeg(image, 0); }), "");
  EXPECT_NE(error_of([&] { encode_jpeg(Image(3, 3, 2)); }), "");
}

TEST(ImageEncode, TheOrientationIsWrittenAndChangesNoPixel) {
  const Image image = scene(13, 7, 3, 9);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Bytes jpeg = encode_jpeg(image, 90, orientation), png = encode_png(image, orientation);
    EXPECT_EQ(image_info(jpeg, "a.jpg").orientation, orientation);
    EXPECT_EQ(image_info(png, "a.png").orientation, orientation);
    const DecodeOptions as_stored{.apply_exif = false};
    EXPECT_EQ(decode_image(jpeg, "a.jpg", as_stored).pixels,
              decode_image(encode_jpeg(image), "b.jpg").pixels);
    EXPECT_EQ(decode_image(png, "a.png", as_stored).pixels, image.pixels);
    EXPECT_EQ(decode_image(png, "a.png").pixels, orient(image, orientation).pixels);
  }
}

TEST(ImageOrient, UndoesItself) {
  const Image image = scene(7, 5, 3, 8);
  const int inverse[9] = {0, 1, 2, 3, 4, 5, 8, 7, 6};
  for (int orientation = 1; orientation <= 8; ++orientation)
    expect_same(orient(orient(image, orientation), inverse[orientation]), image, text(orientation));
}

TEST(RemotePath, SaysHowToFetch) {
  const auto said = [](const char* path) { return error_of([&] { refuse_remote_path(path); }); };
  EXPECT_NE(said("https://example.org/vit.pth").find("(curl -LO https://example.org/vit.pth)"),
            std::string::npos);
  EXPECT_NE(said("hf-hub:timm/vit_tiny").find("(hf download timm/vit_tiny --local-dir FOLDER)"),
            std::string::npos);
  EXPECT_NE(said("s3://bucket/x").find("copy it here first"), std::string::npos);
  for (const char* path : {"", "a.pth", "https", "shapes:train=3", "folder/https://x"})
    refuse_remote_path(path);
}

}  // namespace
}  // namespace tessera
