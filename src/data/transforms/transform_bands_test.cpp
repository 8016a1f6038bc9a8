#include "data/transforms/transform.h"

#include <gtest/gtest.h>

#include <cstring>
#include "core/error.h"
#include "data/base/data_testing.h"
#include "data/transforms/augment_operations.h"

namespace tessera::data {
namespace {

Image scene(int width, int height, int channels) {
  Image image(width, height, channels);
  RandomStream random(5, "scene", static_cast<uint64_t>(channels));
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(random.below(256));
  return image;
}

Preprocess of_channels(size_t channels) {
  Preprocess p;
  p.size = 12;
  p.mean.clear(), p.std.clear();
  for (size_t c = 0; c < channels; ++c) {
    p.mean.push_back(0.1 + 0.05 * static_cast<double>(c));
    p.std.push_back(0.2 + 0.01 * static_cast<double>(c));
  }
  return p;
}

AugmentConfig crops(const std::string& crop) {
  AugmentConfig a;
  a.crop = crop;
  return a;
}

std::vector<float> run(const Transform& transform, const RawSample& sample) {
  std::vector<float> out(static_cast<size_t>(transform.fields()[0].numel()));
  const Slot slot{reinterpret_cast<std::byte*>(out.data()), nullptr};
  RandomStream random(3, "bands");
  transform.apply(sample, random, {&slot, 1});
  return out;
}

std::vector<float> plane(const std::vector<float>& planes, size_t c, size_t size) {
  return {planes.begin() + static_cast<ptrdiff_t>(c * size),
          planes.begin() + static_cast<ptrdiff_t>((c + 1) * size)};
}

// Returns one band as an image, repeated as red, green and blue.
Image only_band(const Image& bands, int band) {
  Image out(bands.width, bands.height);
  for (size_t i = 0; i < out.pixels.size(); ++i)
    out.pixels[i] = bands.pixels[i / 3 * static_cast<size_t>(bands.channels) + static_cast<size_t>(band)];
  return out;
}

TEST(BandsTransform, EachBandIsTreatedAsAColourIs) {
  for (const int channels : {2, 4, 6, 7})
    for (const char* crop : {"random_resized", "padded", "center"}) {
      const Preprocess p = of_channels(static_cast<size_t>(channels));
      const Image bands = scene(31, 23, channels);
      const auto transform = make_train_transform(p, crops(crop));
      EXPECT_EQ(transform->fields()[0].shape, (std::vector<int64_t>{channels, 12, 12}));
      const std::vector<float> all = run(*transform, {"bands", bands, {}});
      for (int c = 0; c < channels; ++c) {
        Preprocess one = p;
        one.mean.assign(3, p.mean[static_cast<size_t>(c)]), one.std.assign(3, p.std[static_cast<size_t>(c)]);
        const auto colour = run(*make_train_transform(one, crops(crop)), {"band", only_band(bands, c), {}});
        EXPECT_EQ(plane(all, static_cast<size_t>(c), 144), plane(colour, 0, 144)) << crop << ", band " << c;
      }
    }
}

TEST(BandsTransform, OneChannelIsTheLuma) {
  const Preprocess p = of_channels(1);
  const Image colour = scene(31, 23, 3);
  Image gray = colour;
  grayscale(gray);
  Preprocess three = p;
  three.mean.assign(3, p.mean[0]), three.std.assign(3, p.std[0]);
  EXPECT_EQ(run(*make_eval_transform(p), {"a", colour, {}}),
            plane(run(*make_eval_transform(three), {"a", gray, {}}), 0, 144));
}

TEST(BandsTransform, ErasingCoversAllBandsAtTheSamePlace) {
  const Preprocess p = of_channels(5);
  AugmentConfig erased = crops("center");
  erased.erase.probability = 1, erased.erase.mode = "const";
  const RawSample sample{"a", scene(31, 23, 5), {}};
  const auto out = run(*make_train_transform(p, erased), sample),
             plain = run(*make_train_transform(p, crops("center")), sample);
  std::vector<bool> first;
  for (size_t c = 0; c < 5; ++c) {
    std::vector<bool> changed;
    for (size_t i = 0; i < 144; ++i) changed.push_back(out[144 * c + i] == 0 && plain[144 * c + i] != 0);
    if (c == 0) first = changed;
    EXPECT_EQ(changed, first);
  }
  EXPECT_NE(std::count(first.begin(), first.end(), true), 0);
}

TEST(BandsTransform, ErrorsSayWhatIsWrong) {
  AugmentConfig colours = crops("center");
  colours.color_jitter = {0.4, 0.4, 0.4};
  EXPECT_NE(error_of([&] { make_train_transform(of_channels(4), colours); }).find("no red, green and blue"),
            std::string::npos);
  Preprocess uneven = of_channels(4);
  uneven.std.pop_back();
  EXPECT_EQ(error_of([&] { make_eval_transform(uneven); }), "std has 3 numbers, must be 4 as mean has");
  EXPECT_EQ(error_of([&] {
              run(*make_eval_transform(of_channels(4)), {"x.png", scene(20, 20, 3), {}});
            }),
            "x.png: has 3 channels, must have 4");
}

// --- TIFFs of many bands ---

void put(std::vector<std::byte>& to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i)));
}

// Uncompressed, one strip, little-endian.
std::vector<std::byte> tiff_of(const Image& image, int bits) {
  const auto channels = static_cast<uint64_t>(image.channels);
  std::vector<std::byte> out;
  put(out, 0x002A4949, 4), put(out, 8, 4);
  constexpr uint64_t kEntries = 9, kBehind = 8 + 2 + 12 * kEntries + 4;
  const uint64_t depths = 2 * channels, pixels = kBehind + depths;
  const auto entry = [&](uint64_t tag, uint64_t type, uint64_t count, uint64_t value) {
    put(out, tag, 2), put(out, type, 2), put(out, count, 4), put(out, value, 4);
  };
  put(out, kEntries, 2);
  entry(256, 4, 1, static_cast<uint64_t>(image.width)), entry(257, 4, 1, static_cast<uint64_t>(image.height));
  entry(258, 3, channels, kBehind), entry(259, 3, 1, 1), entry(262, 3, 1, 1), entry(273, 4, 1, pixels);
  entry(277, 3, 1, channels), entry(278, 4, 1, static_cast<uint64_t>(image.height));
  entry(279, 4, 1, image.pixels.size() * static_cast<uint64_t>(bits / 8));
  put(out, 0, 4);
  for (uint64_t c = 0; c < channels; ++c) put(out, static_cast<uint64_t>(bits), 2);
  for (const uint8_t value : image.pixels) put(out, bits == 8 ? value : 256u * value + 77, bits / 8);
  return out;
}

TEST(BandsTransform, TiffsAreReadBandByBand) {
  for (const int bits : {8, 16}) {
    const Image bands = scene(9, 7, 5);
    const Image read = decode_bands(tiff_of(bands, bits), "bands.tif", 5);
    EXPECT_EQ(read.channels, 5);
    EXPECT_EQ(read.pixels, bands.pixels) << bits << " bits";
  }
  EXPECT_EQ(error_of([] { decode_bands(tiff_of(scene(9, 7, 5), 8), "bands.tif", 4); }),
            "bands.tif: a TIFF of 5 bands of 8 bits, must have 4 bands of 8 bits or more");
  std::vector<std::byte> cut = tiff_of(scene(9, 7, 5), 8);
  cut.resize(cut.size() - 50);
  EXPECT_NE(error_of([&] { decode_bands(cut, "bands.tif", 5); }).find("truncated TIFF"), std::string::npos);
}

}  // namespace
}  // namespace tessera::data
