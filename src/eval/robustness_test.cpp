#include "eval/robustness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"

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
  const std::vector<double> ship = {0, 0, 0, 0, 0, 0, 0.4, 0.3, 0.2, 0.1};  // the best two are in no category
  EXPECT_EQ(mapping.categories[cue_decision(ship, mapping)], "boat");
  EXPECT_TRUE(cue_mapping_of_names(std::vector<std::string>{"red", "green"}).categories.empty());
}

TEST(CueMapping, ACategoryIsAsLikelyAsTheMeanOfItsClasses) {
  const CueMapping mapping{{"wide", "narrow"}, {{0, 1, 2}, {3}}};
  EXPECT_EQ(cue_decision(std::vector<double>{0.3, 0.2, 0.2, 0.3}, mapping), 1u);
}

}  // namespace
}  // namespace tessera::eval
