#include "data/transforms/transform.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "data/base/geometry.h"
#include "data/transforms/augment.h"
#include "data/transforms/view_augment.h"
#include "io/files/file.h"
#include "io/weights/safetensors.h"

namespace tessera::data {
namespace {

const std::string kComponents = std::string(TESSERA_TEST_DATA) + "/goldens/components/";

Image image_of(const TensorView& tensor) {
  Image image(static_cast<int>(tensor.shape[1]), static_cast<int>(tensor.shape[0]));
  std::memcpy(image.pixels.data(), tensor.bytes.data(), image.pixels.size());
  return image;
}

Image scene(int width, int height, int channels = 3) {
  Image image(width, height, channels);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        image.row(y)[x * channels + c] =
            static_cast<uint8_t>(127 + 100 * std::sin(x / 11.0 + c) * std::cos(y / 7.0 - c) + ((x ^ y) & 15));
  return image;
}

RawSample as_jpeg(const Image& image) { return {"scene.jpg", encode_jpeg(image, 90)}; }

std::vector<float> run(const Transform& transform, const RawSample& sample, RandomStream random) {
  std::vector<float> out(static_cast<size_t>(transform.fields()[0].numel()));
  const Slot slot{reinterpret_cast<std::byte*>(out.data()), nullptr};
  transform.apply(sample, random, {&slot, 1});
  return out;
}

// Returns (byte / 255 - mean) / std of an interleaved image, as planes.
std::vector<float> normalised(const Image& image, const Preprocess& p, bool mirrored = false) {
  std::vector<float> out;
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < image.height; ++y)
      for (int x = 0; x < image.width; ++x) {
        const int from = mirrored ? image.width - 1 - x : x;
        const float v = static_cast<float>(image.row(y)[3 * from + c]) / 255.0f;
        out.push_back((v - static_cast<float>(p.mean[static_cast<size_t>(c)])) /
                      static_cast<float>(p.std[static_cast<size_t>(c)]));
      }
  return out;
}

// Bit by bit, whatever the orientation of the file; a decoded image is unchanged.
TEST(DecodeOnce, ChangesNoView) {
  Preprocess p;
  p.size = 24;
  const auto views =
      join_views({make_view_transform(p, {.scale = {0.05, 0.4}}), make_view_transform(p, {.blur = 1})});
  const auto once = decode_once(views, p.apply_exif);
  const Image image = scene(97, 61);
  for (const int orientation : {1, 3, 6})
    for (const RawSample& sample :
         {RawSample{"scene.jpg", encode_jpeg(image, 90, orientation)}, RawSample{"scene", image}})
      for (const uint64_t seed : {1, 2, 3}) {
        const auto made = [&](const Transform& transform) {
          std::vector<float> out(2 * static_cast<size_t>(transform.fields()[0].numel()));
          const std::array slots = {Slot{reinterpret_cast<std::byte*>(out.data()), nullptr},
                                    Slot{reinterpret_cast<std::byte*>(out.data() + out.size() / 2), nullptr}};
          RandomStream random(seed, "test");
          transform.apply(sample, random, slots);
          return out;
        };
        EXPECT_EQ(made(*once), made(*views)) << orientation << " " << seed;
      }
}

TEST(EvalTransform, GivesTimmsTensors) {
  const auto golden = nlohmann::json::parse(read_text(kComponents + "aug_eval_transform.json"));
  const SafetensorsFile arrays(kComponents + "aug_eval_transform.safetensors");
  const RawSample sample{"input", image_of(*arrays.find("input.rgb"))};
  int index = 0;
  for (const auto& c : golden["config"]["cases"]) {
    Preprocess p;
    p.crop = c["crop_pct"];
    p.interpolation = c["interp"];
    p.crop_mode = c["mode"];
    p.mean = c["mean"].get<std::vector<double>>();
    p.std = c["std"].get<std::vector<double>>();
    const auto transform = make_eval_transform(p, c["size"][0], c["size"][1]);
    const std::vector<float> got = run(*transform, sample, RandomStream(0, "none"));
    const TensorView* want = arrays.find(text("output.case", index, ".tensor"));
    ASSERT_NE(want, nullptr);
    ASSERT_EQ(want->bytes.size(), got.size() * 4);
    std::vector<float> values(got.size());
    std::memcpy(values.data(), want->bytes.data(), want->bytes.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], values[i], 1e-6 + 1e-6 * std::abs(values[i])) << index;
    ++index;
  }
  EXPECT_EQ(index, 7);
}

TEST(EvalTransform, TakesFilesGrayAndTallPictures) {
  Preprocess p;
  p.size = 32;
  const auto transform = make_eval_transform(p);
  for (const auto& [width, height] : {std::pair{64, 48}, {30, 90}, {7, 5}, {200, 36}}) {
    const Image image = scene(width, height);
    const Extent size = test_size({height, width}, {32, 32}, 0.875, CropMode::center);
    const Box window = centre(size, {32, 32}).window;
    const Image want = cut(resize(image, size.width, size.height, Interpolation::bicubic), window);
    EXPECT_EQ(run(*transform, {"x", encode_png(image)}, RandomStream(0, "none")), normalised(want, p));
  }
  const Image gray = scene(50, 40, 1);
  Image rgb(50, 40);
  for (size_t i = 0; i < gray.pixels.size(); ++i) std::memset(&rgb.pixels[3 * i], gray.pixels[i], 3);
  EXPECT_EQ(run(*transform, {"x", gray}, RandomStream(0, "none")),
            run(*transform, {"x", rgb}, RandomStream(0, "none")));
}

// OpenCLIP's resize_mode longest: the whole image in the middle of a black square.
TEST(EvalTransform, TheLongestSideFillsABlackSquare) {
  Preprocess p;
  p.size = 20, p.crop = 1, p.crop_mode = "longest", p.mean = {0, 0, 0}, p.std = {1, 1, 1};
  Image white(40, 20);
  std::fill(white.pixels.begin(), white.pixels.end(), uint8_t{255});
  const std::vector<float> out = run(*make_eval_transform(p), {"x", white}, RandomStream(0, "none"));
  for (size_t y = 0; y < 20; ++y)
    for (size_t x = 0; x < 20; ++x) ASSERT_EQ(out[20 * y + x], y >= 5 && y < 15 ? 1.0f : 0.0f) << y;
}

// LLaVA's expand2square: the square has the mean colour, truncated, and the image its middle, rounded down.
TEST(EvalTransform, PadsToASquareOfTheMeanColour) {
  Preprocess p, plain;
  p.size = plain.size = 16, p.crop = plain.crop = 1;
  p.crop_mode = "pad";
  for (const auto& [width, height] : {std::pair{41, 20}, {20, 41}, {30, 30}}) {
    const Image image = scene(width, height);
    const int side = std::max(width, height), left = (side - width) / 2, top = (side - height) / 2;
    Image square(side, side);
    for (size_t i = 0; i < square.pixels.size(); ++i)
      square.pixels[i] = static_cast<uint8_t>(255 * p.mean[i % 3]);
    for (int y = 0; y < height; ++y)
      std::memcpy(square.row(top + y) + 3 * left, image.row(y), 3 * static_cast<size_t>(width));
    EXPECT_EQ(run(*make_eval_transform(p), {"x", image}, RandomStream(0, "none")),
              run(*make_eval_transform(plain), {"x", square}, RandomStream(0, "none")));
  }
  EXPECT_THROW(run(*make_eval_transform(p), {"long", Image(20000, 1)}, RandomStream(0, "none")), Error);
}

// transformers rounds an odd margin down, torchvision half to even: 43 - 32 pixels.
TEST(EvalTransform, RoundsOddMarginsDownIfAsked) {
  Preprocess p;
  p.size = 32, p.crop = 1, p.crop_mode = "center_floor";
  const Image image = scene(32, 43);
  EXPECT_EQ(run(*make_eval_transform(p), {"x", image}, RandomStream(0, "none")),
            normalised(cut(image, {0, 5, 32, 32}), p));
  p.crop_mode = "center";
  EXPECT_EQ(run(*make_eval_transform(p), {"x", image}, RandomStream(0, "none")),
            normalised(cut(image, {0, 6, 32, 32}), p));
}

TEST(TrainTransform, ResizedCropsAreTorchvisionsPixels) {
  const auto golden = nlohmann::json::parse(read_text(kComponents + "aug_random_resized_crop.json"));
  const SafetensorsFile arrays(kComponents + "aug_random_resized_crop.safetensors");
  const Image input = image_of(*arrays.find("input.rgb"));
  int index = 0;
  for (const auto& c : golden["config"]["cases"]) {
    const std::vector<int> tlhw = c["tlhw"], size = c["size_hw"];
    for (const char* name : {"bicubic", "bilinear"}) {
      const Image crop = cut(input, {tlhw[1], tlhw[0], tlhw[3], tlhw[2]});
      const Image got = resize(crop, size[1], size[0], parse_interpolation(name));
      EXPECT_EQ(got.pixels, image_of(*arrays.find(text("output.case", index, ".", name))).pixels);
    }
    ++index;
  }
  EXPECT_EQ(orient(input, 2).pixels, image_of(*arrays.find("output.hflip")).pixels);
  EXPECT_EQ(orient(input, 4).pixels, image_of(*arrays.find("output.vflip")).pixels);
}

// Compares the whole fused path, which decodes only the crop, with its parts.
TEST(TrainTransform, IsCropThenResizeThenFlipThenNormalise) {
  Preprocess p;
  p.size = 40;
  AugmentConfig augment;
  const auto transform = make_train_transform(p, augment);
  const RawSample file = as_jpeg(scene(150, 110));
  const Image whole = decode_image(std::get<0>(file.picture), file.name);
  int flips = 0;
  for (uint64_t i = 0; i < 60; ++i) {
    const RandomStream stream(1, "augment", 0, i);
    RandomStream replay = stream;
    StreamDraws draws(replay);
    const Box box = random_resized_crop({110, 150}, augment.scale, augment.ratio, draws);
    const bool flip = replay.uniform() < 0.5;
    flips += flip;
    const Image want = resize(cut(whole, box), 40, 40, Interpolation::bicubic);
    ASSERT_EQ(run(*transform, file, stream), normalised(want, p, flip)) << i;
    ASSERT_EQ(run(*transform, {"raw", whole}, stream), normalised(want, p, flip)) << i;
  }
  EXPECT_GT(flips, 15);
  EXPECT_LT(flips, 45);
}

TEST(TrainTransform, FollowsTheOrientationWhenAsked) {
  const std::string path = std::string(TESSERA_TEST_DATA) + "/pictures/turn6.jpg";
  Preprocess p;
  p.size = 8;
  p.apply_exif = true;
  const auto transform = make_train_transform(p, {});
  DecodeOptions options;
  options.apply_exif = true;
  const Image oriented = decode_image(read_file(path), path, options);
  for (uint64_t i = 0; i < 20; ++i)
    ASSERT_EQ(run(*transform, {path, read_file(path)}, RandomStream(2, "x", i)),
              run(*transform, {path, oriented}, RandomStream(2, "x", i)));
}

TEST(TrainTransform, PaddedCropsReachEveryPlace) {
  Preprocess p;
  p.size = 8;
  AugmentConfig augment;
  augment.crop = "padded";
  augment.padding = 2;
  for (const char* mode : {"constant", "reflect"}) {
    augment.padding_mode = mode;
    const auto transform = make_train_transform(p, augment);
    const Image image = scene(8, 8);
    std::set<std::vector<float>> seen, expected;
    for (int top = -2; top <= 2; ++top)
      for (int left = -2; left <= 2; ++left) {
        Image want(8, 8);
        for (int y = 0; y < 8; ++y)
          for (int x = 0; x < 8; ++x) {
            int sy = top + y, sx = left + x;
            if (*mode == 'r') sy = reflect(sy, 8), sx = reflect(sx, 8);
            if (sy >= 0 && sy < 8 && sx >= 0 && sx < 8)
              std::memcpy(want.row(y) + 3 * x, image.row(sy) + 3 * sx, 3);
          }
        expected.insert(normalised(want, p, false));
        expected.insert(normalised(want, p, true));
      }
    for (uint64_t i = 0; i < 1000; ++i)
      seen.insert(run(*transform, {"x", image}, RandomStream(7, "crop", i)));
    EXPECT_EQ(seen, expected) << mode;
  }
}

// DeiT III's simple random crop: short side to size, then a padded random crop.
TEST(TrainTransform, PaddedCropsOfLargerPictures) {
  Preprocess p;
  p.size = 20;
  AugmentConfig augment;
  augment.crop = "padded";
  augment.padding = 0;
  augment.flip = 0;
  const auto transform = make_train_transform(p, augment);
  const Image image = scene(90, 60), resized = resize(image, 30, 20, Interpolation::bicubic);
  std::set<int> lefts;
  for (uint64_t i = 0; i < 100; ++i) {
    const std::vector<float> got = run(*transform, {"x", image}, RandomStream(8, "crop", i));
    for (int left = 0; left <= 10; ++left)
      if (got == normalised(cut(resized, {left, 0, 20, 20}), p)) lefts.insert(left);
  }
  EXPECT_EQ(lefts.size(), 11u);
}

// A strip of two rows becomes 640,000 columns at this size: only the cropped ones are computed.
TEST(TrainTransform, AStripCostsNoMoreThanItsCut) {
  Preprocess p;
  p.size = 32;
  AugmentConfig augment;
  augment.crop = "padded";
  const auto transform = make_train_transform(p, augment);
  const std::vector<float> out = run(*transform, {"strip", scene(40000, 2)}, RandomStream(8, "crop", 1));
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float v) { return std::isfinite(v); }));
  for (const auto& long_one : {transform, make_eval_transform(p)}) try {
      run(*long_one, {"long.png", Image(70'000'000, 1)}, RandomStream(8, "crop", 1));
      FAIL();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "long.png: 70000000x1 pixels are too long a strip to be resized");
    }
}

TEST(TrainTransform, FastDecodingIsCloseAndOnlyForLargeCrops) {
  Preprocess p;
  p.size = 24;
  AugmentConfig exact, fast;
  fast.decode = "fast";
  const auto slow = make_train_transform(p, exact), quick = make_train_transform(p, fast);
  const RawSample large = as_jpeg(scene(400, 300)), small = as_jpeg(scene(40, 40));
  double worst = 0;
  int differ = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    const RandomStream stream(4, "augment", i);
    EXPECT_EQ(run(*slow, small, stream), run(*quick, small, stream));
    const auto a = run(*slow, large, stream), b = run(*quick, large, stream);
    differ += a != b;
    double mean = 0;
    for (size_t k = 0; k < a.size(); ++k) mean += std::abs(a[k] - b[k]);
    worst = std::max(worst, mean / static_cast<double>(a.size()));
  }
  EXPECT_GT(differ, 30);
  EXPECT_LT(worst, 0.06);  // in standard deviations: about 3 of 255
}

TEST(TrainTransform, CentreCropFlips) {
  Preprocess p;
  p.size = 16;
  AugmentConfig augment;
  augment.crop = "center";
  augment.flip = 1;
  const Image image = scene(33, 29);
  Image mirrored = orient(image, 2);
  const auto flipped = run(*make_train_transform(p, augment), {"x", image}, RandomStream(1, "a"));
  augment.flip = 0;
  const auto plain = run(*make_train_transform(p, augment), {"x", image}, RandomStream(1, "a"));
  EXPECT_EQ(plain, run(*make_eval_transform(p), {"x", image}, RandomStream(1, "a")));
  for (size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(flipped[i], plain[i / 16 * 16 + 15 - i % 16]);
}

// Pixel augmentations follow crop and flip, and erasing follows normalisation; each uses the sample's own
// stream.
TEST(TrainTransform, AugmentsBetweenFlipAndNormalisation) {
  Preprocess p;
  p.size = 24;
  AugmentConfig augment;
  augment.auto_augment = "rand-m9-mstd0.5-inc1";
  augment.three_augment = true;
  augment.color_jitter = {0.3, 0.3, 0.3, 0.1};
  augment.erase.probability = 0.5;
  const Image image = scene(60, 50);
  const auto transform = make_train_transform(p, augment);
  const PixelAugment pixels(augment, p);
  std::set<std::vector<float>> seen;
  for (uint64_t i = 0; i < 30; ++i) {
    const RandomStream stream(9, "augment", i);
    RandomStream replay = stream;
    StreamDraws draws(replay);
    const Box box = random_resized_crop({50, 60}, augment.scale, augment.ratio, draws);
    const bool flip = draws.fraction() < 0.5;
    Image want = resize(cut(image, box), 24, 24, Interpolation::bicubic);
    if (flip) want = orient(want, 2);
    pixels.apply(draws, want);
    std::vector<float> floats = normalised(want, p);
    erase(augment.erase, 3, 24, 24, draws, floats.data());
    const std::vector<float> got = run(*transform, {"x", image}, stream);
    ASSERT_EQ(got, floats) << i;
    EXPECT_EQ(got, run(*transform, {"x", image}, stream));
    seen.insert(got);
  }
  EXPECT_EQ(seen.size(), 30u);
  for (const char* crop : {"padded", "center"}) {
    augment.crop = crop;
    const auto other = make_train_transform(p, augment);
    EXPECT_NE(run(*other, {"x", image}, RandomStream(1, "a", 1)),
              run(*other, {"x", image}, RandomStream(1, "a", 2)));
  }
}

TEST(Transform, NamesTheSettingThatMakesNoSense) {
  const auto message = [](auto change) {
    Preprocess p;
    AugmentConfig a;
    change(p, a);
    try {
      make_train_transform(p, a);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string();
  };
  using P = Preprocess;
  using A = AugmentConfig;
  EXPECT_EQ(message([](P& p, A&) { p.size = 0; }), "input size is 0x0, each side must be 1 to 16384");
  EXPECT_EQ(message([](P& p, A&) { p.crop = 0; }), "crop is 0, must be above 0 and at most 1");
  EXPECT_EQ(message([](P& p, A&) { p.mean = {1}; }), "std has 3 numbers, must be 1 as mean has");
  EXPECT_EQ(message([](P& p, A&) { p.std[1] = 0; }), "std holds 0, must be positive");
  EXPECT_EQ(message([](P& p, A&) { p.interpolation = "linear"; }).substr(0, 31),
            "unknown interpolation 'linear',");
  EXPECT_EQ(message([](P& p, A&) { p.crop_mode = "x"; }),
            "unknown crop mode 'x', must be center, center_floor, squash, border, longest or pad");
  EXPECT_EQ(message([](P&, A& a) { a.crop = "x"; }),
            "unknown augment crop 'x', must be random_resized, padded or center");
  EXPECT_NE(message([](P&, A& a) { a.scale = {0.5, 0.2}; }), "");
  EXPECT_NE(message([](P&, A& a) { a.ratio = {0, 1}; }), "");
  EXPECT_NE(message([](P&, A& a) { a.padding = -1; }), "");
  EXPECT_NE(message([](P&, A& a) { a.flip = 1.5; }), "");
  EXPECT_NE(message([](P&, A& a) { a.decode = "quick"; }), "");
  EXPECT_NE(message([](P&, A& a) { a.padding_mode = "wrap"; }), "");
  EXPECT_NE(message([](P&, A& a) { a.auto_augment = "rnd"; }), "");
  EXPECT_NE(message([](P&, A& a) { a.color_jitter = {0.1}; }), "");
  EXPECT_NE(message([](P&, A& a) { a.color_jitter = {0.1, 0.1, 0.1, 0.6}; }), "");
  EXPECT_NE(message([](P&, A& a) { a.erase.mode = "x"; }), "");
}

}  // namespace
}  // namespace tessera::data
