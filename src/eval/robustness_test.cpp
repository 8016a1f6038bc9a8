#include "eval/robustness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/core_testing.h"

namespace tessera::eval {
namespace {

TEST(MeanCorruptionError, TheBaselineItselfHasOne) {
  const CorruptionBaseline& alexnet = alexnet_on_imagenet_c();
  const auto own = mean_corruption_error(alexnet.errors, alexnet.clean, alexnet);
  EXPECT_EQ(own.corruption_errors.size(), 15u);
  EXPECT_NEAR(own.mce, 1, 1e-12);
  EXPECT_NEAR(own.relative_mce, 1, 1e-12);
}

TEST(MeanCorruptionError, ABaselineWithoutTheRowIsNamed) {
  const std::vector<CorruptionError> errors = {{"saturate", 0.5}};
  try {
    mean_corruption_error(errors, 0.1, alexnet_on_imagenet_c());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("AlexNet has no error for 'saturate'"), std::string::npos);
  }
}

TEST(CorruptionBaseline, IsReadFromTheTableOfOneModel) {
  const CorruptionBaseline baseline = parse_baseline(
      "corruption,severities,images,error,low,high\r\nclean,,12,0.25,0.1,0.5\n"
      "fog,1 3,12,0.5,0.3,0.7\n\nfrost,3 1,12,0.75,0.5,0.9\n",
      "base.csv");
  ASSERT_EQ(baseline.errors.size(), 2u);
  EXPECT_EQ(baseline.errors[1].corruption, "frost");
  EXPECT_EQ(baseline.errors[1].error, 0.75);
  EXPECT_EQ(baseline.errors[0].images, 12);
  EXPECT_EQ(baseline.clean, 0.25);
  EXPECT_EQ(baseline.clean_images, 12);
  EXPECT_EQ(baseline.severities, (std::vector<int>{1, 3}));
  // The default severities are the benchmark's, as for a table written by hand.
  const CorruptionBaseline plain = parse_baseline("corruption,error\nfog,0.5\n", "plain.csv");
  EXPECT_EQ(plain.severities, (std::vector<int>{1, 2, 3, 4, 5}));
  EXPECT_EQ(plain.errors[0].images, 0);
  EXPECT_TRUE(std::isnan(plain.clean));
}

TEST(CorruptionBaseline, ATableThatIsNoneIsRefused) {
  const auto reading = [](const char* table) {
    return usage_error_of([&] { parse_baseline(table, "b.csv"); });
  };
  EXPECT_EQ(
      reading("corruption,severities,images,slow,slow low,slow high,b,b low,b high\nfog,1,9,0,0,0,0,0,0\n"),
      "b.csv holds the errors of 2 models (slow, b), a baseline is one: write its table with that one as "
      "--weights");
  EXPECT_EQ(reading("fog,0.5\n"),
            "b.csv: its first line must name the columns corruption and error, as --csv writes them");
  EXPECT_EQ(reading("corruption,error\nfog,1.5\n"),
            "b.csv line 2: 'fog,1.5' must name a corruption and its error, 0 to 1");
  EXPECT_EQ(reading("corruption,error\nfog,nan\n"),
            "b.csv line 2: 'fog,nan' must name a corruption and its error, 0 to 1");
  EXPECT_EQ(reading("corruption,severities,error\nfog,1 2,0.5\nfrost,1,0.5\n"),
            "b.csv line 3: the severities '1' must be some of 1 to 5 as in '1 3 5', the same in every line");
  EXPECT_EQ(reading("corruption,severities,error\nfog,6,0.5\n"),
            "b.csv line 2: the severities '6' must be some of 1 to 5 as in '1 3 5', the same in every line");
  EXPECT_EQ(reading("corruption,error\nclean,0.5\n"), "b.csv: holds no line with a corruption and its error");
  EXPECT_EQ(reading(""), "b.csv: holds no line with a corruption and its error");
}

TEST(CorruptionBaseline, MustBeMeasuredAsTheErrorsAre) {
  const CorruptionBaseline& alexnet = alexnet_on_imagenet_c();
  const std::vector<std::string> fog = {"fog"}, more = {"fog", "speckle_noise"};
  const std::vector<int> all = {1, 2, 3, 4, 5}, one = {1};
  EXPECT_EQ(usage_error_of([&] { require_comparable(alexnet, fog, all); }), "");
  EXPECT_EQ(
      usage_error_of([&] { require_comparable(alexnet, fog, one); }),
      "the errors of the baseline AlexNet are means over the severities 1,2,3,4,5, not 1: give --severity "
      "1,2,3,4,5, or a baseline measured at 1");
  EXPECT_EQ(
      usage_error_of([&] { require_comparable(alexnet, more, all); }),
      "the baseline AlexNet has no error for 'speckle_noise': measure it there too, or leave the corruption "
      "out");
  const CorruptionBaseline perfect{"b.csv", {{"fog", 0}}, 0};
  EXPECT_EQ(
      usage_error_of([&] { require_comparable(perfect, fog, all); }),
      "the baseline b.csv has the error 0 for 'fog', by which nothing can be divided: leave the corruption "
      "out");
  EXPECT_EQ(usage_error_of([&] { require_as_many(alexnet, "fog", 12, 0); }), "");
  EXPECT_EQ(
      usage_error_of([&] { require_as_many(alexnet, "fog", 12, 20); }),
      "the baseline AlexNet was measured on 20 images (fog), here are 12: measure both on the same images");
}

TEST(ShapeBias, WithoutADecisionForEitherCueItHasNoValue) {
  const ShapeBias none = shape_bias(std::vector<CueTrial>{{"cat", "dog", "car"}, {"cat", "cat", "cat"}});
  EXPECT_EQ(none.all.total, 1);
  EXPECT_TRUE(std::isnan(none.all.shape_bias()));
  EXPECT_EQ(none.decided(), 0);
}

TEST(CueMapping, Cifar10HasSevenCategories) {
  const std::vector<std::string> cifar = {"airplane", "automobile", "bird",  "cat",  "deer",
                                          "dog",      "frog",       "horse", "ship", "truck"};
  const CueMapping mapping = cue_mapping_of_names(cifar);
  EXPECT_EQ(mapping.categories,
            (std::vector<std::string>{"airplane", "bird", "boat", "car", "cat", "dog", "truck"}));
  const std::vector<double> ship = {0, 0, 0, 0, 0, 0, 0.4, 0.3, 0.2, 0.1};  // the best two have no category
  EXPECT_EQ(mapping.categories[cue_decision(ship, mapping)], "boat");
  EXPECT_TRUE(cue_mapping_of_names(std::vector<std::string>{"red", "green"}).categories.empty());
}

TEST(CueMapping, ACategoryIsAsLikelyAsTheMeanOfItsClasses) {
  const CueMapping mapping{{"wide", "narrow"}, {{0, 1, 2}, {3}}};
  EXPECT_EQ(cue_decision(std::vector<double>{0.3, 0.2, 0.2, 0.3}, mapping), 1u);
}

}  // namespace
}  // namespace tessera::eval
