// Corruptions in use; tests/parity compares their numbers with the benchmarks'.
#include "data/tools/corruption.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "data/base/data_testing.h"
#include "data/tools/corrupt_set.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

Image drawn(int width, int height, uint64_t seed) {
  RandomStream stream(seed, "corruption_test");
  Image image(width, height, 3);
  for (uint8_t& byte : image.pixels) byte = static_cast<uint8_t>(stream.below(256));
  return image;
}

Image corrupted(const Image& image, const std::string& name, int severity, uint64_t seed,
                const CorruptionParameters& table = imagenet_c_parameters()) {
  RandomStream stream(seed, "draws");
  const auto& parameters = table.of(name, severity);
  return corrupt(image, name, parameters, draw_corruption(name, parameters, image, {}, stream));
}

TEST(Corruption, EveryOneTakesEveryShapeInEverySeverityAndKeepsIt) {
  for (const auto& [width, height] : {std::pair{16, 16}, {37, 21}, {18, 50}}) {
    const Image image = drawn(width, height, 1);
    for (const CorruptionParameters* table : {&imagenet_c_parameters(), &cifar_10_c_parameters()})
      for (const std::string& name : corruption_names())
        for (const int severity : {1, 5}) {
          const Image out = corrupted(image, name, severity, 2, *table);
          EXPECT_EQ(out.width, width);
          EXPECT_EQ(out.height, height);
          EXPECT_NE(out.pixels, image.pixels) << name << " " << severity << " of " << table->name;
        }
  }
}

TEST(Corruption, TheSameDrawsGiveTheSameImageAndOthersAnother) {
  const Image image = drawn(32, 32, 3);
  for (const std::string& name : corruption_names()) {
    const Image one = corrupted(image, name, 3, 4);
    EXPECT_EQ(one.pixels, corrupted(image, name, 3, 4).pixels) << name;
    RandomStream stream(5, "draws");
    const auto& parameters = imagenet_c_parameters().of(name, 3);
    const auto draws = draw_corruption(name, parameters, image, {}, stream);
    const bool draws_any = !draws.normal.empty() || !draws.normal_2d.empty() || !draws.uniform_1.empty() ||
                           !draws.counts.empty() || !draws.offsets.empty() || !draws.plasma.empty() ||
                           !draws.field_x.empty() || draws.angle != 0 || draws.frost.width > 0;
    EXPECT_EQ(draws_any, one.pixels != corrupted(image, name, 3, 6).pixels) << name;
  }
}

TEST(Corruption, BlursKeepWhatIsEven) {
  Image even(40, 30, 3);
  for (uint8_t& byte : even.pixels) byte = 128;
  for (const char* name : {"gaussian_blur", "defocus_blur", "motion_blur", "zoom_blur", "elastic_transform",
                           "pixelate", "contrast"})
    for (const uint8_t byte : corrupted(even, name, 3, 7).pixels) EXPECT_NEAR(byte, 128, 1) << name;
}

TEST(Corruption, ShotNoiseHasPoissonsMeanAndVariance) {
  Image even(100, 100, 3);
  for (uint8_t& byte : even.pixels) byte = 102;
  for (const double photons : {3.0, 60.0, 500.0}) {
    RandomStream stream(8, "poisson");
    const auto draws = draw_corruption("shot_noise", std::vector<double>{photons}, even, {}, stream);
    double mean = 0, square = 0;
    for (const int64_t count : draws.counts) mean += static_cast<double>(count) / 30000;
    for (const int64_t count : draws.counts) square += std::pow(static_cast<double>(count) - mean, 2) / 30000;
    const double wanted = 0.4 * photons;
    EXPECT_NEAR(mean, wanted, 5 * std::sqrt(wanted / 30000));
    EXPECT_NEAR(square, wanted, 0.05 * wanted);
  }
}

TEST(Corruption, ImagesTooSmallAndUnknownNamesAreRefused) {
  EXPECT_THROW(corrupted(drawn(15, 40, 1), "fog", 1, 1), Error);
  try {
    imagenet_c_parameters().of("gausian_noise", 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'gaussian_noise'"), std::string::npos);
  }
  EXPECT_THROW(imagenet_c_parameters().of("fog", 6), Error);
}

TEST(CorruptSet, ImagesDependOnSeedAndNameAlone) {
  const std::shared_ptr<const Source> all =
      open_source({.path = "shapes:train=10,val=20,size=32"}, Split::validation);
  CorruptedSource::Options options{
      .corruption = "gaussian_noise", .severity = 2, .parameters = &cifar_10_c_parameters(), .seed = 1};
  const CorruptedSource one(all, options), two(all, options);
  const auto pixels = [](const CorruptedSource& source, int64_t i) {
    return std::get<Image>(source.read(i).picture).pixels;
  };
  EXPECT_EQ(pixels(one, 3), pixels(two, 3));
  options.seed = 2;
  EXPECT_NE(pixels(one, 3), pixels(CorruptedSource(all, options), 3));
}

TEST(CorruptSet, IsWrittenWholeOrNotAtAll) {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path();
  const std::shared_ptr<const Source> source =
      open_source({.path = "shapes:train=10,val=20,size=32"}, Split::validation);
  CorruptConfig config{
      .output = (folder / "c").string(), .corruptions = {"fog", "frost"}, .severities = {1, 4}};
  const CorruptReport report = corrupt_set(source, config);
  EXPECT_EQ(report.pictures, 4 * source->size());
  EXPECT_EQ(report.parameters, "cifar");
  EXPECT_TRUE(report.drawn_frost);
  EXPECT_TRUE(fs::exists(folder / "c" / "fog" / "4"));
  const auto read_back = open_source_with_problems(
      {.path = (folder / "c/fog/4").string(), .val_path = (folder / "c/fog/4").string()}, Split::validation);
  EXPECT_EQ(read_back->size(), source->size());
  EXPECT_THROW(corrupt_set(source, config), Error);  // it already exists
  config.output = (folder / "d").string(), config.corruptions = {"fogg"};
  EXPECT_THROW(corrupt_set(source, config), Error);
  EXPECT_FALSE(fs::exists(folder / "d"));
}

TEST(CorruptSet, AFileSaysWhichImageItWasMadeOf) {
  for (const char* name :
       {"photos/cat/IMG 1.jpg", "set.tar:cat/000012-a.b.png", "shapes validation sample 3"}) {
    const std::string stem = kept_stem(name);
    EXPECT_EQ(kept_stem_of_written("c/fog/1/cat/000007-" + stem + ".png"), stem);
  }
  EXPECT_EQ(kept_stem("photos/cat/IMG 1.jpg"), "IMG_1");
  EXPECT_EQ(kept_stem_of_written("n01440764/ILSVRC2012_val_00000293.JPEG"), "ILSVRC2012_val_00000293");
}

TEST(CorruptSet, ParametersFollowTheSizeUnlessNamed) {
  const auto small = open_source({.path = "shapes:train=10,val=20,size=32"}, Split::validation);
  EXPECT_EQ(parameters_for("", 0, *small).name, "cifar");
  EXPECT_EQ(parameters_for("", 224, *small).name, "imagenet");
  EXPECT_EQ(parameters_for("imagenet", 0, *small).name, "imagenet");
}

TEST(CorruptSet, ASetWithAnImageTooSmallIsRefused) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const Image& image) {
    const std::vector<std::byte> bytes = encode_png(image);
    folder.write(name, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  };
  const auto refusal = [&](int64_t most) {
    const auto source =
        open_source({.path = folder.path("set"), .val_path = folder.path("set")}, Split::validation);
    return error_of([&] { require_corruptible(*source, most); }, &folder);
  };
  write("set/cat/a.png", drawn(16, 40, 1));
  write("set/dog/b.png", drawn(40, 16, 2));
  folder.write("set/dog/broken.png", "\x89PNG\r\n\x1a\nand no more");  // only its reader reports it
  EXPECT_EQ(refusal(0), "no error");
  write("set/dog/c.png", drawn(40, 15, 3));
  write("set/dog/d.png", drawn(8, 8, 4));
  EXPECT_EQ(
      refusal(0),
      "2 of 5 images are too small to be corrupted, as DIR/set/dog/c.png of 40x15: each must have at least "
      "16 pixels a side");
  EXPECT_EQ(refusal(1), "no error");  // checks only a.png
}

}  // namespace
}  // namespace tessera::data
