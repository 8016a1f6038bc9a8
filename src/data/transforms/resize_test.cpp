#include "data/transforms/resize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/weights/safetensors.h"

namespace tessera::data {
namespace {

const std::string kGolden = std::string(TESSERA_TEST_DATA) + "/goldens/components/aug_resize";
constexpr Interpolation kAll[] = {Interpolation::nearest, Interpolation::box,     Interpolation::bilinear,
                                  Interpolation::hamming, Interpolation::bicubic, Interpolation::lanczos};

// Restores the fastest form after a test that selected another.
struct FormGuard {
  ~FormGuard() { use_resample_form(""); }
};

Image image_of(const TensorView& tensor) {
  Image image(static_cast<int>(tensor.shape[1]), static_cast<int>(tensor.shape[0]),
              tensor.shape.size() == 3 ? static_cast<int>(tensor.shape[2]) : 1);
  std::memcpy(image.pixels.data(), tensor.bytes.data(), image.pixels.size());
  return image;
}

Image noise(int width, int height, int channels, uint64_t seed) {
  RandomStream random(seed, "noise");
  Image image(width, height, channels);
  const bool hard = random.chance(0.3);  // only 0 and 255: filters with negative lobes overshoot
  for (uint8_t& v : image.pixels) v = static_cast<uint8_t>(hard ? 255 * random.below(2) : random.below(256));
  return image;
}

TEST(Resize, GivesPillowsPixels) {
  FormGuard guard;
  const auto golden = nlohmann::json::parse(read_text(kGolden + ".json"));
  const SafetensorsFile arrays(kGolden + ".safetensors");
  for (const std::string& form : resample_form_names()) {
    use_resample_form(form);
    int compared = 0;
    for (const TensorView& want : arrays.tensors()) {
      const std::vector<std::string> parts = split(want.name, '.');
      if (parts[0] != "output") continue;
      const bool gray = parts[1] == "gray", boxed = parts[1].starts_with("box_");
      const Image input = image_of(*arrays.find(gray ? "input.gray" : "input.rgb"));
      FloatBox box{0, 0, static_cast<double>(input.width), static_cast<double>(input.height)};
      if (boxed) {
        const auto& ltrb = golden["config"][parts[1]]["box_ltrb"];
        box = {ltrb[0], ltrb[1], ltrb[2], ltrb[3]};
      }
      const Interpolation interpolation = parse_interpolation(gray || boxed ? parts[2] : parts[1]);
      const Image got =
          resize(input, static_cast<int>(want.shape[1]), static_cast<int>(want.shape[0]), interpolation, box);
      ASSERT_EQ(got.pixels, image_of(want).pixels) << want.name << " with " << form;
      ++compared;
    }
    EXPECT_GE(compared, 50);
  }
}

TEST(Resize, EveryFormGivesThePlainOnesBits) {
  FormGuard guard;
  RandomStream random(1, "sizes");
  for (int i = 0; i < 300; ++i) {
    const int most = i % 2 ? 20 : 150;
    const int width = static_cast<int>(random.integer(1, most)),
              height = static_cast<int>(random.integer(1, most));
    const Image image = noise(width, height, i % 5 ? 3 : 1, static_cast<uint64_t>(i));
    ResizePlan plan;
    plan.width = static_cast<int>(random.integer(1, 140));
    plan.height = static_cast<int>(random.integer(1, 140));
    plan.box = {0, 0, static_cast<double>(width), static_cast<double>(height)};
    if (i % 3 == 0)
      plan.box = {random.uniform(0, width * 0.5), random.uniform(0, height * 0.5),
                  random.uniform(width * 0.6, width), random.uniform(height * 0.6, height)};
    plan.window.width = static_cast<int>(random.integer(1, plan.width));
    plan.window.height = static_cast<int>(random.integer(1, plan.height));
    plan.window.left = static_cast<int>(random.integer(0, plan.width - plan.window.width));
    plan.window.top = static_cast<int>(random.integer(0, plan.height - plan.window.height));
    plan.mirrored = random.chance(0.5);
    plan.interpolation = kAll[random.below(6)];
    const size_t size = 3 * static_cast<size_t>(plan.window.width) * static_cast<size_t>(plan.window.height);
    std::vector<uint8_t> want(size), got(size);
    use_resample_form("plain");
    resize_planes(image, plan, want.data());
    for (const std::string& form : resample_form_names()) {
      use_resample_form(form);
      std::fill(got.begin(), got.end(), uint8_t{77});
      resize_planes(image, plan, got.data());
      ASSERT_EQ(got, want) << form << ": " << width << "x" << height << " to " << plan.width << "x"
                           << plan.height;
    }
  }
}

// A window equals the crop, and a mirror the flip, of the whole result.
TEST(Resize, AWindowIsTheCutOfTheWhole) {
  for (const Interpolation interpolation : kAll) {
    for (const auto& [width, height] : {std::pair{40, 30}, {90, 20}, {17, 61}}) {
      const Image image = noise(53, 47, 3, 4);
      const Image whole = resize(image, width, height, interpolation);
      for (const bool mirrored : {false, true}) {
        const Box window{5, 7, 9, 11};
        std::vector<uint8_t> planes(3 * 9 * 11);
        resize_planes(image, {{0, 0, 53, 47}, width, height, interpolation, window, mirrored}, planes.data());
        for (int c = 0; c < 3; ++c)
          for (int y = 0; y < 11; ++y)
            for (int x = 0; x < 9; ++x) {
              const int from = window.left + (mirrored ? 8 - x : x);
              ASSERT_EQ(planes[static_cast<size_t>((c * 11 + y) * 9 + x)], whole.row(7 + y)[3 * from + c]);
            }
      }
    }
  }
}

// Every form normalises bit for bit like plain division.
TEST(Resize, NormalisesEachByte) {
  FormGuard guard;
  Image image(67, 40);  // every byte in every channel, and a width that is not a multiple of any vector
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i / 3 + i % 3);
  const ResizePlan plan{{0, 0, 67, 40}, 67, 40, Interpolation::bicubic, {0, 0, 67, 40}, false};
  RandomStream random(3, "deviations");
  for (int i = 0; i < 30; ++i) {
    std::vector<double> mean = {0.485, 0.456, 0.406}, std = {0.229, 0.224, 0.225};
    for (size_t c = 0; i && c < 3; ++c) mean[c] = random.uniform(0, 1), std[c] = random.uniform(0.01, 1.5);
    const Normalisation normalisation(mean, std);
    ASSERT_TRUE(i > 0 || (normalisation.by_fma(0) && normalisation.by_fma(1) && normalisation.by_fma(2)));
    for (const std::string& form : resample_form_names()) {
      use_resample_form(form);
      std::vector<float> got(3 * 67 * 40);
      resize_planes(image, plan, normalisation, got.data());
      for (size_t k = 0; k < got.size(); ++k) {
        const size_t c = k / (67 * 40), pixel = k % (67 * 40);
        const float byte = static_cast<float>(image.pixels[3 * pixel + c]);
        ASSERT_EQ(got[k], (byte / 255.0f - static_cast<float>(mean[c])) / static_cast<float>(std[c])) << form;
      }
    }
  }
}

TEST(Resize, KeepsAConstantPictureAndTheSameSize) {
  for (const Interpolation interpolation : kAll) {
    Image flat(31, 22);
    std::fill(flat.pixels.begin(), flat.pixels.end(), uint8_t{201});
    for (const uint8_t v : resize(flat, 50, 9, interpolation).pixels) ASSERT_EQ(v, 201);
    const Image image = noise(31, 22, 3, 6);
    EXPECT_EQ(resize(image, 31, 22, interpolation).pixels, image.pixels);
  }
}

TEST(Resize, RefusesWhatMakesNoSense) {
  const Image image = noise(8, 6, 3, 7);
  EXPECT_THROW(resize(image, 0, 5, Interpolation::bicubic), Error);
  EXPECT_THROW(resize(image, 5, -1, Interpolation::bicubic), Error);
  EXPECT_THROW(resize(Image(), 5, 5, Interpolation::bicubic), Error);
  EXPECT_THROW(resize(Image(4, 4, 4), 5, 5, Interpolation::bicubic), Error);
  for (const FloatBox& box :
       {FloatBox{-1, 0, 5, 5}, FloatBox{0, 0, 8.5, 5}, FloatBox{3, 3, 3, 5}, FloatBox{0, 5, 5, 4}})
    EXPECT_THROW(resize(image, 5, 5, Interpolation::bilinear, box), Error);
  try {
    parse_interpolation("bicubik");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
    EXPECT_STREQ(error.what(), "unknown interpolation 'bicubik', did you mean 'bicubic'?");
  }
  EXPECT_THROW(use_resample_form("mmx"), Error);
}

}  // namespace
}  // namespace tessera::data
