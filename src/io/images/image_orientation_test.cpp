// The orientation in the metadata of an image, in the places where Pillow's getexif() finds it.
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "io/files/file.h"
#include "io/images/image_codec.h"
#include "io/images/image_testing.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::byte>;

std::string xmp(const std::string& value) {
  return R"(<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/")" +
         value + "/></x:xmpmeta>";
}

std::string big_endian(size_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

Bytes inserted(Bytes file, size_t at, const std::string& words) {
  const auto* first = reinterpret_cast<const std::byte*>(words.data());
  file.insert(file.begin() + static_cast<std::ptrdiff_t>(at), first, first + words.size());
  return file;
}

Bytes jpeg_with(const std::string& segment) {
  return inserted(encode_jpeg(scene(8, 6, 3, 1)), 2,
                  "\xff\xe1" + big_endian(segment.size() + 2, 2) + segment);
}

Bytes png_with(const std::string& kind, const std::string& content) {
  const std::string body = kind + content;
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return inserted(encode_png(scene(8, 6, 3, 1)), 33,
                  big_endian(content.size(), 4) + body + big_endian(sum, 4));
}

std::string deflated(const std::string& words) {
  std::string out(compressBound(words.size()), '\0');
  uLongf size = out.size();
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(words.data()),
           words.size());
  out.resize(size);
  return out;
}

std::string exif(int orientation) {
  const auto block = codec::exif_block(orientation);
  return {reinterpret_cast<const char*>(block.data()), block.size()};
}

int turn(const Bytes& file) { return image_info(file, "file").orientation; }

const std::string kZero(1, '\0');
const std::string kXmpName = "http://ns.adobe.com/xap/1.0/" + kZero;
const std::string kPngXmp = "XML:com.adobe.xmp" + kZero;

TEST(ImageOrientation, JpegReadsXmpIfExifHasNone) {
  EXPECT_EQ(turn(jpeg_with(kXmpName + xmp(R"( tiff:Orientation="6")"))), 6);
  EXPECT_EQ(turn(jpeg_with(kXmpName + "<tiff:Orientation>8</tiff:Orientation>")), 8);
  EXPECT_EQ(turn(jpeg_with(kXmpName + xmp(R"( tiff:Orientation="9")"))), 1);
  EXPECT_EQ(turn(jpeg_with(kXmpName + xmp(R"( exif:Orientation="6")"))), 1);
  // EXIF precedes XMP, even if it has the upright orientation.
  const std::string both = kXmpName + xmp(R"( tiff:Orientation="6")");
  Bytes file = jpeg_with("Exif" + kZero + kZero + exif(3));
  EXPECT_EQ(turn(inserted(file, 2, "\xff\xe1" + big_endian(both.size() + 2, 2) + both)), 3);
  file = jpeg_with("Exif" + kZero + kZero + exif(1));
  EXPECT_EQ(turn(inserted(file, 2, "\xff\xe1" + big_endian(both.size() + 2, 2) + both)), 1);
}

TEST(ImageOrientation, JpegIsDecodedAsXmpTurnsIt) {
  const Image upright = decode_image(encode_jpeg(scene(8, 6, 3, 1)), "upright");
  const Bytes file = jpeg_with(kXmpName + xmp(R"( tiff:Orientation="6")"));
  expect_same(decode_image(file, "turned"), orient(upright, 6), "turned");
  expect_same(decode_image(file, "stored", {.apply_exif = false}), upright, "stored");
}

TEST(ImageOrientation, PngReadsXmpInEveryFormOfText) {
  const std::string words = xmp(R"( tiff:Orientation="5")"), plain(4, '\0'),
                    packed = "\x01" + std::string(3, '\0');
  EXPECT_EQ(turn(png_with("iTXt", kPngXmp + plain + words)), 5);
  EXPECT_EQ(turn(png_with("iTXt", kPngXmp + packed + deflated(words))), 5);
  EXPECT_EQ(turn(png_with("tEXt", kPngXmp + words)), 5);
  EXPECT_EQ(turn(png_with("zTXt", kPngXmp + kZero + deflated(words))), 5);
  EXPECT_EQ(turn(png_with("iTXt", "Comment" + kZero + plain + words)), 1);
  EXPECT_EQ(turn(png_with("zTXt", kPngXmp + kZero + "no stream")), 1);
  EXPECT_EQ(turn(png_with("zTXt", kPngXmp + kZero + deflated(words + std::string(2 << 20, ' ')))), 1);
}

// ImageMagick wrote EXIF into PNGs in this form before there was a chunk for it.
TEST(ImageOrientation, PngReadsExifInHexadecimalText) {
  std::string profile = "\nexif\n      32\n";
  const std::string block = "Exif" + kZero + kZero + exif(7);
  for (size_t i = 0; i < block.size(); ++i) {
    constexpr const char* kDigits = "0123456789abcdef";
    profile += {kDigits[static_cast<unsigned char>(block[i]) >> 4], kDigits[block[i] & 15]};
    if (i % 36 == 35) profile += '\n';
  }
  const std::string key = "Raw profile type exif" + kZero;
  EXPECT_EQ(turn(png_with("tEXt", key + profile)), 7);
  EXPECT_EQ(turn(png_with("zTXt", key + kZero + deflated(profile))), 7);
  EXPECT_EQ(turn(png_with("tEXt", key + "\nexif\n")), 1);
  EXPECT_EQ(turn(png_with("tEXt", key + "\nexif\n 4\nzz")), 1);
}

std::string little_endian(size_t value, int bytes) {
  std::string out = big_endian(value, bytes);
  return {out.rbegin(), out.rend()};
}

std::string webp_chunk(const std::string& kind, const std::string& content) {
  return kind + little_endian(content.size(), 4) + content + std::string(content.size() % 2, '\0');
}

// Returns a WebP of one chunk of pixels with metadata of a kind ("EXIF", "XMP ") whose flag is given.
Bytes webp_with(const std::string& kind, int flag, const std::string& content) {
  const std::string name = "lossless_rgb.webp";
  const Bytes file = read_file(std::string(TESSERA_TEST_DATA) + "/pictures/" + name);
  const ImageInfo info = image_info(file, name);
  const std::string pixels(reinterpret_cast<const char*>(file.data()) + 12, file.size() - 12);
  const std::string canvas = static_cast<char>(flag) + std::string(3, '\0') +
                             little_endian(static_cast<size_t>(info.width) - 1, 3) +
                             little_endian(static_cast<size_t>(info.height) - 1, 3);
  const std::string body = "WEBP" + webp_chunk("VP8X", canvas) + pixels + webp_chunk(kind, content);
  return inserted({}, 0, "RIFF" + little_endian(body.size(), 4) + body);
}

TEST(ImageOrientation, WebpReadsXmp) {
  EXPECT_EQ(turn(webp_with("XMP ", 4, xmp(R"( tiff:Orientation="8")"))), 8);
  EXPECT_EQ(turn(webp_with("XMP ", 4, xmp(""))), 1);
  EXPECT_EQ(turn(webp_with("EXIF", 8, exif(6))), 6);
}

// Returns a TIFF of 2 x 1 gray pixels with an entry of XMP, and with an orientation unless it is 0.
Bytes tiff_with(const std::string& packet, int orientation) {
  std::vector<std::string> entries;
  size_t data = 0;  // the place of the pixels, which precede the packet
  const auto entry = [&](size_t tag, size_t kind, size_t count, size_t value) {
    entries.push_back(little_endian(tag, 2) + little_endian(kind, 2) + little_endian(count, 4) +
                      little_endian(value, 4));
  };
  const size_t count = orientation > 0 ? 11 : 10;
  data = 8 + 2 + 12 * count + 4;
  entry(256, 3, 1, 2), entry(257, 3, 1, 1), entry(258, 3, 1, 8), entry(259, 3, 1, 1), entry(262, 3, 1, 1);
  entry(273, 4, 1, data);
  if (orientation > 0) entry(274, 3, 1, static_cast<size_t>(orientation));
  entry(277, 3, 1, 1), entry(278, 3, 1, 1), entry(279, 4, 1, 2), entry(700, 1, packet.size(), data + 2);
  std::string file = "II" + little_endian(42, 2) + little_endian(8, 4) + little_endian(count, 2);
  for (const std::string& one : entries) file += one;
  return inserted({}, 0, file + little_endian(0, 4) + "\x10\x20" + packet);
}

TEST(ImageOrientation, TiffReadsXmpWithoutATag) {
  const std::string packet = xmp(R"( tiff:Orientation="6")");
  EXPECT_EQ(turn(tiff_with(packet, 0)), 6);
  EXPECT_EQ(turn(tiff_with(packet, 3)), 3);
  EXPECT_EQ(turn(tiff_with(packet, 1)), 1);
  const Image turned = decode_image(tiff_with(packet, 0), "turned");
  EXPECT_EQ(turned.width, 1);
  EXPECT_EQ(turned.height, 2);
}

}  // namespace
}  // namespace tessera
