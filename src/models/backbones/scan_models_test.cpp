// Vision Mamba and Vision-RWKV: settings that no published size has.
#include <gtest/gtest.h>

#include "core/error.h"
#include "models/base/encoder.h"
#include "models/heads/class_head.h"

namespace tessera::models::scan_models_test {
namespace {

using torch::Tensor;

std::shared_ptr<Classifier> small(const char* family, Value::Table extra) {
  Value all(Value::Table{{"dim", 16}, {"depth", 2}, {"patch_size", 4}, {"image_size", 16}, {"classes", 3}});
  merge(all, Value(std::move(extra)));
  auto model = build_classifier(resolve_model(family, all), 1);
  model->backbone->to(torch::kFloat64);
  model->backbone->eval();
  return model;
}

Tensor picture() {
  torch::manual_seed(2);
  return torch::randn({2, 3, 16, 16}, torch::kFloat64);
}

std::string refusal(const char* family, Value::Table extra) {
  try {
    small(family, std::move(extra));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Vim, RefusesSettingsThatExcludeEachOther) {
  EXPECT_EQ(refusal("vim", {{"stride", 5}}),
            "model.stride = 5 leaves out pixels, must be at most patch_size = 4");
  EXPECT_EQ(refusal("vim", {{"layer_pairs", true}, {"depth", 3}}),
            "model.layer_pairs = true needs an even depth, not 3");
  EXPECT_EQ(refusal("vim", {{"rope", true}, {"class_token", "both"}}),
            "model.rope = true needs an even number of patches (here 16) and at most one class token");
  EXPECT_EQ(refusal("vim", {{"rope_residual", true}}), "model.rope_residual = true goes with rope = true");
}

// Scans of all patches in their order, with the class tokens in their places: the same as without a choice.
TEST(Vim, KeepingAllPatchesChangesNothing) {
  const torch::NoGradGuard no_grad;
  for (const char* token : {"middle", "head", "both", "none"}) {
    const auto model = small("vim", {{"class_token", token}});
    auto& encoder = dynamic_cast<TokenEncoder&>(*model->backbone);
    const Tokens tokens = encoder.tokenise(picture());
    const Tensor index = torch::arange(16, torch::kInt64).expand({2, -1});
    EXPECT_TRUE(torch::equal(encoder.pool(encoder.encode(encoder.keep(tokens, index))),
                             model->backbone->embed(picture())))
        << token;
  }
}

// With one direction the first tokens do not depend on the last patch. With two they do.
TEST(Vim, OneDirectionIsCausal) {
  const torch::NoGradGuard no_grad;
  for (const char* directions : {"none", "v1", "v2"}) {
    const auto model = small("vim", {{"directions", directions}, {"class_token", "none"}});
    Tensor changed = picture();
    changed.slice(2, 12).slice(3, 12).add_(1);
    const Tensor first = model->backbone->features(picture(), {1})[0].flatten(2).slice(2, 0, 15),
                 other = model->backbone->features(changed, {1})[0].flatten(2).slice(2, 0, 15);
    EXPECT_EQ(torch::equal(first, other), std::string(directions) == "none") << directions;
  }
}

TEST(Vim, FlipsSequencesInTrainingOnly) {
  const torch::NoGradGuard no_grad;
  const auto model = small("vim", {{"flip_ratio", 1.0}, {"directions", "none"}});
  const Tensor usual = model->backbone->embed(picture());
  model->backbone->train();
  EXPECT_FALSE(torch::allclose(model->backbone->embed(picture()), usual));
}

// Their 4 x 4 positions serve an image of another size.
TEST(ScanModels, ReadImagesOfOtherSizes) {
  const torch::NoGradGuard no_grad;
  const Tensor wide = torch::randn({1, 3, 16, 24}, torch::kFloat64);
  for (const char* family : {"vim", "vrwkv"})
    EXPECT_EQ(small(family, {})->backbone->features(wide, {0, 1})[1].sizes(),
              (std::vector<int64_t>{1, 16, 4, 6}));
}

TEST(Vrwkv, NeedsAllPatchesForItsShift) {
  const auto keeps = [](int64_t pixels) {
    const auto model = small("vrwkv", {{"shift_pixels", pixels}});
    return dynamic_cast<TokenEncoder&>(*model->backbone).keep_refusal();
  };
  EXPECT_EQ(keeps(1), "q-shift reads the neighbours of every patch");
  EXPECT_EQ(keeps(0), "");
}

TEST(Vrwkv, FirstValuesArePublished) {
  const auto model = small("vrwkv", {{"depth", 3}});
  const auto parameters = model->backbone->named_parameters();
  const Tensor decay = parameters["blocks.2.att.spatial_decay"],
               first = parameters["blocks.0.att.spatial_first"];
  EXPECT_NEAR(decay[0].item<double>(), -5, 1e-6);
  EXPECT_NEAR(decay[15].item<double>(), 3, 1e-6);
  EXPECT_NEAR(first[0].item<double>(), std::log(0.3), 1e-6);  // zigzag 0, 0.5, -0.5
  EXPECT_NEAR(first[1].item<double>(), std::log(0.3) + 0.5, 1e-6);
  EXPECT_NEAR(parameters["blocks.0.ffn.spatial_mix_k"].flatten()[4].item<double>(), 0.25, 1e-6);
}

}  // namespace
}  // namespace tessera::models::scan_models_test
