#include "io/images/image.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include <jpeglib.h>

#include "core/random.h"
#include "io/files/file.h"
#include "io/files/io_testing.h"
#include "io/images/image_codec.h"
#include "io/images/image_testing.h"
#include "io/weights/safetensors.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::byte>;

const std::string kComponents = std::string(TESSERA_TEST_DATA) + "/goldens/components";
const std::string kPictures = std::string(TESSERA_TEST_DATA) + "/pictures";

void expect_same(const Image& got, const TensorView* want, const std::string& what) {
  ASSERT_NE(want, nullptr) << what;
  ASSERT_EQ(want->shape, (std::vector<int64_t>{got.height, got.width, got.channels})) << what;
  const auto* pixels = reinterpret_cast<const uint8_t*>(want->bytes.data());
  for (size_t i = 0; i < got.pixels.size(); ++i)
    ASSERT_EQ(int{got.pixels[i]}, int{pixels[i]}) << what << " at byte " << i;
}

struct JpegKind {
  const char* name;
  int components = 3, across = 2, down = 2;  // sampling factors of the first component
  bool progressive = false, arithmetic = false, separate_scans = false;
  int restart = 0;
};

Bytes encode(const Image& image, const JpegKind& kind, int quality = 85) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : image.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  if (image.channels == 4) jpeg_set_colorspace(&info, JCS_YCCK);
  info.comp_info[0].h_samp_factor = kind.across;
  info.comp_info[0].v_samp_factor = kind.down;
  if (image.channels == 4) {
    info.comp_info[3].h_samp_factor = kind.across;
    info.comp_info[3].v_samp_factor = kind.down;
  }
  info.arith_code = kind.arithmetic;
  info.restart_interval = static_cast<unsigned>(kind.restart);
  if (kind.progressive) jpeg_simple_progression(&info);
  std::array<jpeg_scan_info, 4> scans{};
  if (kind.separate_scans) {
    for (int c = 0; c < image.channels; ++c) scans[static_cast<size_t>(c)] = {1, {c}, 0, 63, 0, 0};
    info.scan_info = scans.data();
    info.num_scans = image.channels;
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.row(static_cast<int>(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* first = reinterpret_cast<std::byte*>(memory);
  Bytes bytes(first, first + size);
  std::free(memory);
  return bytes;
}

const JpegKind kKinds[] = {
    {.name = "gray", .components = 1, .across = 1, .down = 1},
    {.name = "4:4:4", .across = 1, .down = 1},
    {.name = "4:2:2", .across = 2, .down = 1},
    {.name = "4:4:0", .across = 1, .down = 2},
    {.name = "4:2:0"},
    {.name = "4:1:1", .across = 4, .down = 1},
    {.name = "4:1:0", .across = 4, .down = 2},
    {.name = "4:2:0 restarts", .restart = 5},
    {.name = "4:2:0 progressive", .progressive = true},
    {.name = "4:2:2 progressive", .across = 2, .down = 1, .progressive = true},
    {.name = "4:2:0 arithmetic", .arithmetic = true},
    {.name = "4:2:0 a scan a component", .separate_scans = true},
    {.name = "CMYK", .components = 4, .across = 1, .down = 1},
    {.name = "CMYK 4:2:0", .components = 4},
};

// Pillow clips gray of 16 bits at 255.
bool is_clipped_by_pillow(const std::string& name) { return name.find("gray16") != std::string::npos; }

TEST(ImageDecode, GivesPillowsPixels) {
  const auto golden = nlohmann::json::parse(read_text(kComponents + "/aug_image_decode.json"));
  const SafetensorsFile arrays(kComponents + "/aug_image_decode.safetensors");
  int compared = 0;
  for (const auto& [name, config] : golden["config"].items()) {
    const Bytes bytes = read_file(kComponents + "/images/" + name);
    if (config.contains("raises")) {
      const std::string message = error_of([&] { decode_image(bytes, name); });
      EXPECT_EQ(message.substr(0, name.size() + 2), name + ": ");
      continue;
    }
    const Image image = decode_image(bytes, name, {.apply_exif = false});
    if (!is_clipped_by_pillow(name)) expect_same(image, arrays.find("output." + name), name);
    if (const TensorView* oriented = arrays.find("output_transposed." + name))
      expect_same(decode_image(bytes, name), oriented, name);
    ++compared;
  }
  EXPECT_GE(compared, 20);
}

TEST(ImageDecode, GivesPillowsPixelsForOddFiles) {
  const SafetensorsFile arrays(kPictures + "/pictures.safetensors");
  for (const TensorView& tensor : arrays.tensors()) {
    const bool oriented = tensor.name.starts_with("output_turned.");
    const std::string name = tensor.name.substr(tensor.name.find('.') + 1);
    DecodeOptions options;
    options.apply_exif = oriented;
    const Bytes bytes = read_file(kPictures + "/" + name);
    if (!is_clipped_by_pillow(name)) expect_same(decode_image(bytes, name, options), &tensor, tensor.name);
  }
}

TEST(ImageDecode, CropIsTheCutOfTheWhole) {
  RandomStream random(1, "boxes");
  for (const JpegKind& kind : kKinds) {
    for (const auto& [width, height] : {std::pair{131, 97}, {16, 16}, {33, 200}, {260, 40}}) {
      const Bytes bytes = encode(scene(width, height, kind.components, 3), kind);
      const Image whole = decode_image(bytes, kind.name);
      Image crop;
      for (int i = 0; i < 60; ++i) {
        Box box;
        box.width = static_cast<int>(random.integer(1, i % 3 ? width : std::min(width, 20)));
        box.height = static_cast<int>(random.integer(1, i % 3 ? height : std::min(height, 20)));
        box.left = static_cast<int>(random.integer(0, width - box.width));
        box.top = static_cast<int>(random.integer(0, height - box.height));
        decode_image_crop(bytes, kind.name, box, {}, crop);
        expect_same(crop, cut(whole, box),
                    text(kind.name, " ", width, "x", height, ", crop ", box.width, "x", box.height, "+",
                         box.left, "+", box.top));
      }
    }
  }
}

TEST(ImageDecode, CropAtAScaleIsTheCutOfTheScaledWhole) {
  RandomStream random(2, "boxes");
  for (const JpegKind& kind : kKinds) {
    const int width = 203, height = 149;
    const Bytes bytes = encode(scene(width, height, kind.components, 4), kind);
    for (const int scale : {2, 4, 8}) {
      DecodeOptions options;
      options.scale = scale;
      const Image whole = decode_image(bytes, kind.name, options);
      EXPECT_EQ(whole.width, (width + scale - 1) / scale);
      EXPECT_EQ(whole.height, (height + scale - 1) / scale);
      for (int i = 0; i < 40; ++i) {
        Box box;
        box.width = static_cast<int>(random.integer(1, width));
        box.height = static_cast<int>(random.integer(1, height));
        box.left = static_cast<int>(random.integer(0, width - box.width));
        box.top = static_cast<int>(random.integer(0, height - box.height));
        const int x0 = box.left / scale, x1 = (box.left + box.width + scale - 1) / scale;
        const int y0 = box.top / scale, y1 = (box.top + box.height + scale - 1) / scale;
        expect_same(decode_image_crop(bytes, kind.name, box, options), cut(whole, {x0, y0, x1 - x0, y1 - y0}),
                    text(kind.name, " 1/", scale, ", crop ", box.width, "x", box.height, "+", box.left, "+",
                         box.top));
      }
    }
  }
}

TEST(ImageDecode, CropFollowsTheOrientation) {
  for (const char* ending : {"jpg", "png", "webp"}) {
    for (int orientation = 1; orientation <= 8; ++orientation) {
      const std::string name = text("turn", orientation, ".", ending);
      const Bytes bytes = read_file(kPictures + "/" + name);
      EXPECT_EQ(image_info(bytes, name).orientation, orientation) << name;
      DecodeOptions options;
      options.apply_exif = true;
      const Image whole = decode_image(bytes, name, options);
      for (const Box& box :
           {Box{0, 0, 1, 1}, Box{2, 3, 5, 7}, Box{0, 0, whole.width, whole.height}, Box{4, 1, 9, 12}})
        expect_same(decode_image_crop(bytes, name, box, options), cut(whole, box), name);
    }
  }
}

TEST(ImageDecode, ACropOutsideThePictureIsAnError) {
  const Bytes bytes = encode_jpeg(scene(20, 10, 3, 1));
  for (const Box& box :
       {Box{0, 0, 21, 10}, Box{0, 0, 20, 11}, Box{-1, 0, 5, 5}, Box{0, -1, 5, 5}, Box{3, 3, 0, 5},
        Box{3, 3, 5, -5}, Box{19, 9, 2, 1}, Box{2147483647, 0, 2, 1}, Box{1, 1, 2147483647, 1}})
    EXPECT_NE(error_of([&] { decode_image_crop(bytes, "a.jpg", box); }).find("must be within 20x10"),
              std::string::npos);
}

TEST(ImageDecode, TooManyPixelsAreRefusedBeforeAllocation) {
  Bytes png = encode_png(scene(4, 4, 3, 1));
  const auto put = [](Bytes& bytes, size_t at, std::initializer_list<int> values) {
    for (const int v : values) bytes[at++] = static_cast<std::byte>(v);
  };
  put(png, 16, {0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff});
  EXPECT_EQ(error_of([&] { decode_image(png, "bomb.png"); }),
            "bomb.png: 2147483647x2147483647 are too many pixels, at most 178956970 are allowed");
  Bytes jpeg = encode_jpeg(scene(16, 16, 3, 1));
  for (size_t i = 0; i + 8 < jpeg.size(); ++i) {
    if (jpeg[i] != std::byte{0xff} || jpeg[i + 1] != std::byte{0xc0}) continue;
    put(jpeg, i + 5, {0xff, 0xdc, 0xff, 0xdc});
  }
  EXPECT_EQ(error_of([&] { decode_image(jpeg, "bomb.jpg"); }),
            "bomb.jpg: 65500x65500 are too many pixels, at most 178956970 are allowed");
  DecodeOptions options;
  options.max_pixels = 15;
  for (const char* name : {"turn1.webp", "turn1.png", "turn1.jpg", "rgb24.bmp", "gray.gif", "strips.tif"})
    EXPECT_NE(
        error_of([&] { decode_image(read_file(kPictures + "/" + name), name, options); }).find("at most 15"),
        std::string::npos);
}

// A file of 200 bytes must not make the decoder reserve the sizes in its fields.
TEST(ImageDecode, StripsAndTilesThatPromiseTooMuchAreRefusedBeforeAllocation) {
  const auto set = [](Bytes bytes, int tag, int value) {
    const auto u16 = [&](size_t i) {
      return std::to_integer<int>(bytes[i]) | std::to_integer<int>(bytes[i + 1]) << 8;
    };
    const auto directory = static_cast<size_t>(u16(4));
    for (int e = 0; e < u16(directory); ++e) {
      const size_t at = directory + 2 + 12 * static_cast<size_t>(e);
      if (u16(at) != tag) continue;
      bytes[at + 8] = static_cast<std::byte>(value & 255), bytes[at + 9] = static_cast<std::byte>(value >> 8);
    }
    return bytes;
  };
  const auto read = [](const char* name) { return read_file(kPictures + "/" + name); };
  const auto said = [](const Bytes& bytes) { return error_of([&] { decode_image(bytes, "t.tif"); }); };
  const Bytes tiles = read("tiles.tif");
  EXPECT_NE(said(set(tiles, 322, 65520)), "");
  EXPECT_NE(said(set(tiles, 323, 65520)), "");
  EXPECT_EQ(said(set(set(tiles, 322, 65520), 323, 65520)),
            "t.tif: a tile: 65520x65520 are too many pixels, at most 4194304 are allowed");
  EXPECT_NE(said(set(read("planes.tif"), 277, 60000)), "");
  EXPECT_NE(said(set(read("rgb16.tif"), 258, 64)), "");
}

TEST(ImageDecode, TellsAnImageByItsFirstBytes) {
  const SafetensorsFile arrays(kPictures + "/pictures.safetensors");
  for (const TensorView& tensor : arrays.tensors()) {
    const Bytes bytes = read_file(kPictures + "/" + tensor.name.substr(tensor.name.find('.') + 1));
    EXPECT_TRUE(is_image(std::span(bytes).first(std::min(bytes.size(), kImageHeadBytes)))) << tensor.name;
  }
  for (const char* words :
       {"", "B", "BM", "BMW and other makers of cars in the world", "GIF", "II", "RIFF....WAVE"})
    EXPECT_FALSE(is_image(std::as_bytes(std::span(std::string_view(words))))) << words;
}

TEST(ImageDecode, EndlessScansAreRefused) {
  Bytes bytes =
      encode(scene(32, 32, 1, 1), {.name = "", .components = 1, .across = 1, .down = 1, .progressive = true});
  size_t last_scan = 0;
  for (size_t i = 0; i + 1 < bytes.size(); ++i)
    if (bytes[i] == std::byte{0xff} && bytes[i + 1] == std::byte{0xda}) last_scan = i;
  const Bytes scan(bytes.begin() + static_cast<ptrdiff_t>(last_scan), bytes.end() - 2);
  bytes.resize(bytes.size() - 2);
  for (int i = 0; i < 600; ++i) bytes.insert(bytes.end(), scan.begin(), scan.end());
  bytes.push_back(std::byte{0xff});
  bytes.push_back(std::byte{0xd9});
  EXPECT_NE(error_of([&] { decode_image(bytes, "scans.jpg"); }).find("scans.jpg: broken JPEG"),
            std::string::npos);
}

TEST(ImageDecode, SaysWhatAFileIs) {
  const auto message = [](const std::string& content) {
    const auto* first = reinterpret_cast<const std::byte*>(content.data());
    return error_of([&] { decode_image({first, content.size()}, "x"); });
  };
  const std::string must = "must be a JPEG, PNG, WebP, GIF, BMP or TIFF image";
  EXPECT_EQ(message(""), "x: the file is empty, " + must);
  EXPECT_EQ(message("%PDF-1.4"), "x: is a PDF, " + must);
  EXPECT_EQ(message("<!DOCTYPE html>"), "x: is a web page, " + must);
  using namespace std::string_literals;
  const std::pair<std::string, std::string> strangers[] = {
      {"\0\0\0\x18"
       "ftypmif1"s,
       "an HEIC"},
      {"\0\0\0\x18"
       "ftypisom"s,
       "a video"},
      {"\x1a\x45\xdf\xa3"s, "a video"},
      {std::string(128, '\0') + "DICM", "a DICOM file"},
      {"\xff\x0a"s, "a JPEG XL file"},
      {"\0\0\0\x0cjP  \r\n"s, "a JPEG 2000 file"},
      {"II*\0\x10\0\0\0CR\x02\0"s, "a camera's raw file"},
      {"P6\n8 8\n255\n"s, "a Netpbm file"},
      {"<?xml version=\"1.0\"?>\n<svg width=\"8\"/>"s, "an SVG drawing"},
      {"version https://git-lfs.github.com/spec/v1"s, "a pointer of Git LFS (git lfs pull)"}};
  for (const auto& [content, name] : strangers) EXPECT_EQ(message(content), "x: is " + name + ", " + must);
  EXPECT_EQ(message("BMW and other makers of cars"), "x: not an image (" + must + ")");
  EXPECT_EQ(message("GIF89a......"), "x: truncated GIF, the file ends before the image does");
  EXPECT_EQ(message("II*"), "x: not an image (" + must + ")");
  EXPECT_EQ(message("\xff\xd8\xff"), "x: truncated JPEG, the file ends in its headers");
  EXPECT_EQ(message("\x89PNG\r\n\x1a\n"), "x: truncated PNG, the file ends in its headers");
}

// Every truncation is an error, except after the pixels.
TEST(ImageDecode, TruncationIsAnErrorAtEveryLength) {
  const Image image = scene(40, 24, 3, 9);
  const std::pair<std::string, Bytes> files[] = {
      {"a.jpg", encode_jpeg(image)},
      {"p.jpg", encode(image, {.name = "", .progressive = true})},
      {"a.png", encode_png(image)},
      {"a.webp", read_file(kPictures + "/lossy_alpha.webp")},
      {"p.gif", read_file(kPictures + "/palette.gif")},
      {"i.gif", read_file(kPictures + "/interlaced.gif")},
      {"p.bmp", read_file(kPictures + "/palette4.bmp")},
      {"c.bmp", read_file(kPictures + "/rgb24.bmp")},
      {"r.bmp", read_file(kPictures + "/runs8.bmp")},
      {"s.tif", read_file(kPictures + "/strips.tif")},
      {"t.tif", read_file(kPictures + "/tiles.tif")},
  };
  for (const auto& [name, bytes] : files) {
    // The end chunk and a checksum; the end mark; padding of the last row; runs for one extra line.
    const std::map<std::string, size_t> spares = {{"a.png", 16}, {"p.gif", 1}, {"i.gif", 1},
                                                  {"p.bmp", 1},  {"c.bmp", 1}, {"r.bmp", 10}};
    const size_t spare = spares.contains(name) ? spares.at(name) : 0;
    for (size_t size = 0; size + spare < bytes.size(); ++size) {
      const std::string message =
          error_of([&, file = name, all = bytes] { decode_image(std::span(all).first(size), file); });
      ASSERT_EQ(message.substr(0, name.size() + 2), name + ": ") << name << " cut to " << size;
      ASSERT_NE(error_of([&, all = bytes] {
                  decode_image_crop(std::span(all).first(size), "f", {0, 0, 8, 8});
                }),
                "")
          << name << " cut to " << size;
    }
  }
}

// Files that were cut in their data and closed by an end marker, as repair tools leave them.
TEST(ImageDecode, AJpegWithMissingRowsHasADamage) {
  constexpr std::array kEnd = {std::byte{0xff}, std::byte{0xd9}};
  for (const JpegKind& kind : kKinds) {
    const Bytes whole = encode(scene(64, 64, kind.components, 11), kind);
    std::string damage = "from before";
    decode_image(whole, "whole", damage);
    EXPECT_EQ(damage, "") << kind.name;
    if (kind.progressive || kind.arithmetic || kind.separate_scans)
      continue;  // libjpeg does not warn of all cuts
    for (const double share : {0.5, 0.7, 0.9}) {
      Bytes cut(whole.begin(),
                whole.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(whole.size())));
      if (cut.back() == std::byte{0xff}) cut.pop_back();
      cut.insert(cut.end(), kEnd.begin(), kEnd.end());
      const Image image = decode_image(cut, "cut", damage);
      EXPECT_EQ(image.height, 64);
      EXPECT_NE(damage, "") << kind.name << " cut at " << share;
    }
  }
  std::string damage = "from before";
  decode_image(encode_png(scene(8, 8, 3, 1)), "a.png", damage);
  EXPECT_EQ(damage, "");
}

TEST(ImageDecode, DamagedFilesGiveAPictureOrAnErrorLine) {
  RandomStream random(5, "damage");
  const Image image = scene(40, 24, 3, 9);
  const std::vector<Bytes> files = {encode_jpeg(image),
                                    encode(image, {.name = "", .progressive = true, .restart = 2}),
                                    encode_png(image),
                                    read_file(kPictures + "/lossy_alpha.webp"),
                                    read_file(kPictures + "/lossless_rgb.webp"),
                                    read_file(kPictures + "/animated.webp"),
                                    read_file(kPictures + "/turn6.jpg"),
                                    read_file(kPictures + "/palette4_7.png"),
                                    read_file(kPictures + "/adam7_gray16.png"),
                                    read_file(kPictures + "/transparent.gif"),
                                    read_file(kPictures + "/interlaced.gif"),
                                    read_file(kPictures + "/palette4.bmp"),
                                    read_file(kPictures + "/fields565.bmp"),
                                    read_file(kPictures + "/runs4.bmp"),
                                    read_file(kPictures + "/jpeg.tif"),
                                    read_file(kPictures + "/strips.tif"),
                                    read_file(kPictures + "/tiles.tif"),
                                    read_file(kPictures + "/fax.tif")};
  DecodeOptions options;
  options.max_pixels = 1 << 20;
  options.apply_exif = true;
  int decoded = 0, refused = 0;
  for (const Bytes& file : files) {
    for (int i = 0; i < 300; ++i) {
      Bytes bytes = file;
      const int64_t changes = random.integer(1, 6);
      for (int64_t c = 0; c < changes; ++c)
        bytes[random.below(i % 2 ? std::min<size_t>(bytes.size(), 80) : bytes.size())] =
            static_cast<std::byte>(random.below(256));
      if (error_of([&] { decode_image(bytes, "damaged", options); }).empty())
        ++decoded;
      else
        ++refused;
      error_of([&] { decode_image_crop(bytes, "damaged", {1, 2, 9, 5}, options); });
    }
  }
  EXPECT_GT(decoded, 100);
  EXPECT_GT(refused, 100);
}

// Returns the pixels or the error, with our own Huffman decoding or libjpeg's.
std::string outcome(const Bytes& bytes, const Box* box, bool own) {
  codec::huffman_use().allowed = own;
  std::string result;
  const std::string message = error_of([&] {
    const Image image = box ? decode_image_crop(bytes, "x", *box) : decode_image(bytes, "x");
    result.assign(image.pixels.begin(), image.pixels.end());
  });
  codec::huffman_use().allowed = true;
  return message.empty() ? result : message;
}

TEST(ImageHuffman, DecodesPlainPicturesAsLibjpegDoes) {
  codec::HuffmanUse& use = codec::huffman_use();
  for (const JpegKind& kind : kKinds) {
    const bool plain = !kind.progressive && !kind.arithmetic && !kind.separate_scans && !kind.restart;
    for (const int quality : {5, 50, 85, 100}) {
      for (const auto& [width, height] : {std::pair{97, 61}, {8, 8}, {1, 1}, {300, 33}}) {
        const Bytes bytes = encode(scene(width, height, kind.components, 11), kind, quality);
        const int64_t taken = use.taken, left = use.left;
        const Box box{width / 2, height / 2, (width + 1) / 2, (height + 1) / 2};
        ASSERT_EQ(outcome(bytes, nullptr, true), outcome(bytes, nullptr, false))
            << kind.name << " " << quality;
        ASSERT_EQ(outcome(bytes, &box, true), outcome(bytes, &box, false)) << kind.name << " " << quality;
        EXPECT_EQ(use.taken - taken, plain ? 2 : 0) << kind.name;
        EXPECT_EQ(use.left, left) << kind.name << " " << quality;
      }
    }
  }
}

TEST(ImageHuffman, LeavesDamagedDataToLibjpeg) {
  RandomStream random(6, "damage");
  codec::HuffmanUse& use = codec::huffman_use();
  const int64_t left = use.left;
  for (const JpegKind& kind : {kKinds[0], kKinds[1], kKinds[4]}) {
    const Bytes file = encode(scene(61, 47, kind.components, 12), kind, 90);
    for (int i = 0; i < 400; ++i) {
      Bytes bytes = file;
      for (int64_t changes = random.integer(1, 4); changes > 0; --changes)
        bytes[160 + random.below(bytes.size() - 160)] = static_cast<std::byte>(random.below(256));
      const Box box{10, 20, 30, 20};
      ASSERT_EQ(outcome(bytes, nullptr, true), outcome(bytes, nullptr, false)) << kind.name << " " << i;
      ASSERT_EQ(outcome(bytes, &box, true), outcome(bytes, &box, false)) << kind.name << " " << i;
    }
  }
  EXPECT_GT(use.left - left, 100);
}

}  // namespace
}  // namespace tessera
