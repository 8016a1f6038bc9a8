// Compares the augmentations with the numbers of timm, torchvision and Pillow.
#include "data/transforms/augment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/draws_testing.h"
#include "data/transforms/augment_operations.h"
#include "io/files/file.h"
#include "io/weights/safetensors.h"

namespace tessera::data {
namespace {

using Json = nlohmann::json;

struct Case {
  explicit Case(const std::string& name)
      : json(Json::parse(read_text(path(name) + ".json"))), arrays(path(name) + ".safetensors") {}
  static std::string path(const std::string& name) {
    return std::string(TESSERA_TEST_DATA) + "/goldens/components/" + name;
  }
  const TensorView& view(const std::string& name) const {
    const TensorView* found = arrays.find(name);
    check(found, "no array ", name);
    return *found;
  }
  Image image(const std::string& name) const {
    const TensorView& v = view(name);
    Image out(static_cast<int>(v.shape[1]), static_cast<int>(v.shape[0]), v.shape.size() == 3 ? 3 : 1);
    std::memcpy(out.pixels.data(), v.bytes.data(), out.pixels.size());
    return out;
  }
  std::vector<float> floats(const std::string& name) const {
    std::vector<float> out(view(name).bytes.size() / 4);
    std::memcpy(out.data(), view(name).bytes.data(), out.size() * 4);
    return out;
  }
  Json json;
  SafetensorsFile arrays;
};

void adjust(const std::string& what, double factor, Image& image) {
  if (what == "brightness") adjust_brightness(image, factor);
  if (what == "contrast") adjust_contrast(image, factor);
  if (what == "saturation") adjust_saturation(image, factor);
  if (what == "hue") adjust_hue(image, factor);
  if (what == "gamma") adjust_gamma(image, factor);
}

TEST(AugmentColor, GivesTorchvisionsPixels) {
  const Case golden("aug_color_jitter");
  const Image input = golden.image("input.rgb");
  int compared = 0;
  for (const TensorView& v : golden.arrays.tensors()) {
    const std::vector<std::string> parts = split(v.name, '.');
    if (parts[0] != "output" || parts.size() < 3) continue;
    Image got = input;
    adjust(parts[1], *parse_double(v.name.substr(parts[0].size() + parts[1].size() + 2)), got);
    EXPECT_EQ(got.pixels, golden.image(v.name).pixels) << v.name;
    ++compared;
  }
  EXPECT_GE(compared, 25);
  const Json& sequences = golden.json["config"]["sequences"];
  for (size_t i = 0; i < sequences.size(); ++i) {
    Image got = input;
    for (const Json& step : sequences[i]) adjust(step[0], step[1], got);
    EXPECT_EQ(got.pixels, golden.image(text("output.sequence", i)).pixels);
  }
  EXPECT_EQ(luma(input).pixels, golden.image("output.gray_L").pixels);
  EXPECT_EQ(to_hsv(input).pixels, golden.image("output.hsv").pixels);
}

TEST(AugmentThree, GivesPillowsPixels) {
  const Case golden("aug_three_augment");
  const Image input = golden.image("input.rgb");
  for (const TensorView& v : golden.arrays.tensors()) {
    const std::vector<std::string> parts = split(v.name, '.');
    if (parts[0] != "output") continue;
    Image got = input;
    const double value = parts.size() > 2 ? *parse_double(v.name.substr(parts[1].size() + 8)) : 0;
    if (parts[1] == "grayscale") grayscale(got);
    if (parts[1] == "solarize") solarize(got, static_cast<int>(value));
    if (parts[1] == "gaussian_blur") got = gaussian_blur(input, value);
    if (parts[1] == "box_blur") got = box_blur(input, value);
    EXPECT_EQ(got.pixels, golden.image(v.name).pixels) << v.name;
  }
}

TEST(AugmentPolicy, OperationsGiveTimmsPixels) {
  RandomStream stream(0, "unused");
  StreamDraws draws(stream);
  int compared = 0;
  for (const char* name : {"aug_randaugment_ops_1", "aug_randaugment_ops_2"}) {
    const Case golden(name);
    const Json& config = golden.json["config"];
    const Image input = golden.image("input.rgb");
    OpSettings settings;
    settings.translate_pixels = config["translate_const"];
    for (size_t c = 0; c < 3; ++c) settings.fill[c] = config["img_mean"][c];
    for (const auto& [key, arguments] : config["args"].items()) {
      // output.OP.mMAGNITUDE[.neg][.FILTER]
      const std::string op = split(key, '.')[1], rest = key.substr(op.size() + 9);
      const double magnitude = *parse_double(rest.substr(0, 3));
      const bool negative = rest.find(".neg") != std::string::npos;
      settings.interpolation = rest.ends_with("bilinear") ? Interpolation::bilinear : Interpolation::bicubic;
      const auto argument = op_argument(op, magnitude, settings, negative);
      ASSERT_EQ(argument.has_value(), !arguments.empty()) << key;
      ASSERT_NEAR(argument.value_or(0), argument ? arguments[0].get<double>() : 0.0, 1e-12) << key;
      if (config.contains("raises") && config["raises"].contains(key)) continue;
      Image got = input;
      apply_op(op, argument.value_or(0), settings, draws, got);
      ASSERT_EQ(got.pixels, golden.image(key).pixels) << key;
      ++compared;
    }
    for (const TensorView& v : golden.arrays.tensors()) {
      if (!v.name.starts_with("output.rotate_deg.")) continue;
      const std::string rest = v.name.substr(18), filter = split(rest, '.').back();
      const double degrees = *parse_double(rest.substr(0, rest.size() - filter.size() - 1));
      const Image got = rotate(input, degrees, parse_interpolation(filter), settings.fill);
      ASSERT_EQ(got.pixels, golden.image(v.name).pixels) << v.name;
    }
  }
  EXPECT_GE(compared, 100);
}

TEST(AugmentPolicy, LevelsMeanWhatTheyMeanInTimm) {
  const Json config = Json::parse(read_text(Case::path("aug_randaugment_config") + ".json"))["config"];
  OpSettings settings;
  settings.translate_pixels = config["level_translate_const"];
  for (const auto& [op, levels] : config["level_to_arg"].items())
    for (const auto& [level, arguments] : levels.items())
      EXPECT_NEAR(op_argument(op, *parse_double(level), settings, false).value(), arguments[0].get<double>(),
                  1e-12)
          << op << " " << level;
}

void expect_ops(const std::vector<PolicyOp>& got, const Json& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i]["name"].get<std::string>()) << what;
    EXPECT_EQ(got[i].probability, want[i]["prob"].get<double>()) << what;
    EXPECT_EQ(got[i].magnitude, want[i]["magnitude"].get<double>()) << what;
    EXPECT_EQ(got[i].deviation, want[i].value("mstd", 0.0)) << what;
    const bool bounded = want[i].contains("mmax") && !want[i]["mmax"].is_null();
    EXPECT_EQ(got[i].most, bounded ? want[i]["mmax"].get<double>() : 10) << what;
  }
}

TEST(AugmentPolicy, ReadsTimmsDescriptions) {
  const Json config = Json::parse(read_text(Case::path("aug_randaugment_config") + ".json"))["config"];
  for (const auto& [description, want] : config["rand_augment"].items()) {
    const Policy policy = parse_policy(description);
    EXPECT_EQ(policy.layers, want["num_layers"].get<int>());
    std::vector<PolicyOp> ops;
    for (const auto& choice : policy.choices) {
      ASSERT_EQ(choice.size(), 1u);
      ops.push_back(choice[0]);
    }
    expect_ops(ops, want["ops"], description);
  }
  for (const auto& [name, want] : config["policies"].items()) {
    const Policy policy = parse_policy(name);
    EXPECT_EQ(policy.layers, 1);
    ASSERT_EQ(policy.choices.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) expect_ops(policy.choices[i], want[i], text(name, " ", i));
  }
  EXPECT_EQ(parse_policy("v0r").choices[12][0].name, "PosterizeIncreasing");
  EXPECT_TRUE(std::isinf(parse_policy("rand-m9-mstd101").choices[0][0].deviation));
  EXPECT_EQ(parse_policy("rand-t3aw").weights.size(), 14u);
}

TEST(AugmentPolicy, SaysWhatItDoesNotUnderstand) {
  const auto message = [](const std::string& description) {
    try {
      parse_policy(description);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("random-m9"),
            "unknown augmentation 'random-m9', must be rand-…, original, originalr, v0, v0r or 3a, as in "
            "rand-m9-mstd0.5-inc1");
  EXPECT_EQ(message("rand-q9"),
            "augmentation 'rand-q9': 'q' is unknown, must be m, n, p, mstd, mmax, inc or t");
  EXPECT_EQ(message("rand-m"),
            "augmentation 'rand-m': 'm' is no setting, one is a word and a number as in m9");
  EXPECT_NE(message("rand-tall"), "");
  EXPECT_NE(message(""), "");
  EXPECT_NE(message("v0-m9"), "");
  EXPECT_THROW(op_argument("Rotat", 1, {}, false), Error);
}

TEST(AugmentPolicy, WeightedChoicesAreDrawnOnceAndByWeight) {
  Policy policy;
  for (const char* name : {"Invert", "Solarize"}) policy.choices.push_back({{name, 1.0, 0}});
  policy.weights = {1, 0};
  policy.layers = 1;
  RandomStream stream(1, "draw");
  StreamDraws draws(stream);
  Image image(2, 2);
  apply_policy(policy, {}, draws, image);
  EXPECT_EQ(image.pixels[0],
            255);  // Solarize at 0 would invert too, so the weight of 0 is tested by both together
  policy.weights = {1, 1};
  policy.layers = 2;  // each once: inverted twice
  for (int i = 0; i < 20; ++i) {
    Image twice(2, 2);
    apply_policy(policy, {}, draws, twice);
    EXPECT_EQ(twice.pixels[0], 0);
  }
}

TEST(AugmentErase, ErasesTimmsBoxes) {
  const Case golden("aug_random_erasing");
  const Json& cases = golden.json["config"]["cases"];
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json& c = cases[i];
    EraseConfig config;
    config.mode = "const";
    config.probability = c["probability"];
    config.least_count = c["min_count"];
    config.most_count = c["max_count"];
    config.least_area = c["min_area"];
    config.most_area = c["max_area"];
    config.least_aspect = c["min_aspect"];
    std::vector<RecordedDraw> recorded;
    for (const Json& d : c["draws"])
      recorded.push_back(d[0] == "random" ? RecordedDraw{"random", 0, 1, d[1]}
                                          : RecordedDraw{d[0], d[1], d[2], d[3]});
    ListedDraws draws(recorded);
    std::vector<float> got = golden.floats(text("input.case", i));
    erase(config, 3, c["h"], c["w"], draws, got.data());
    EXPECT_TRUE(draws.used_up());
    EXPECT_EQ(got, golden.floats(text("output.case", i)));
  }
}

TEST(AugmentErase, FillsAsItsModeSays) {
  EraseConfig config;
  config.probability = 1;
  for (const char* mode : {"const", "rand", "pixel"}) {
    config.mode = mode;
    RandomStream stream(5, mode);
    StreamDraws draws(stream);
    std::vector<float> picture(3 * 40 * 40, 9.0f);
    erase(config, 3, 40, 40, draws, picture.data());
    std::set<float> values(picture.begin(), picture.end());
    values.erase(9.0f);
    const size_t most = config.mode == "const" ? 1 : config.mode == "rand" ? 3 : 3 * 40 * 40;
    EXPECT_LE(values.size(), most) << mode;
    EXPECT_GE(values.size(), std::min<size_t>(most, 50)) << mode;
  }
  config.mode = "noise";
  EXPECT_THROW(check_erase(config), Error);
}

TEST(ThreeAugment, DoesEachOfThree) {
  Image image(9, 9);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 37);
  Image gray = image, solarized = image;
  grayscale(gray);
  solarize(solarized, 128);
  int counts[3] = {};
  RandomStream stream(2, "three");
  StreamDraws draws(stream);
  for (int i = 0; i < 300; ++i) {
    Image got = image;
    three_augment(draws, got);
    ++counts[got.pixels == gray.pixels ? 0 : got.pixels == solarized.pixels ? 1 : 2];
  }
  for (const int count : counts) EXPECT_NEAR(count, 100, 40);
}

TEST(ColorJitter, StaysWithinItsStrength) {
  Image flat(4, 4);
  std::fill(flat.pixels.begin(), flat.pixels.end(), uint8_t{100});
  RandomStream stream(3, "jitter");
  StreamDraws draws(stream);
  int least = 255, most = 0;
  for (int i = 0; i < 500; ++i) {
    Image got = flat;
    color_jitter({0.3, 0, 0}, draws, got);
    least = std::min<int>(least, got.pixels[0]), most = std::max<int>(most, got.pixels[0]);
  }
  EXPECT_GE(least, 70);
  EXPECT_LE(least, 72);
  EXPECT_GE(most, 127);
  EXPECT_LE(most, 130);
}

}  // namespace
}  // namespace tessera::data
