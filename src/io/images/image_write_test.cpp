#include "io/images/image.h"

#include <gtest/gtest.h>

#include "io/files/io_testing.h"
#include "io/files/path.h"

namespace tessera {
namespace {

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
