#include "models/base/model.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/backbones/models_testing.h"

namespace tessera::models::input_channels_test {
namespace {

using torch::Tensor;

struct Small {
  const char* family;
  Value settings;
};

std::vector<Small> small_models() {
  const Value plain(Value::Table{
      {"image_size", 16}, {"patch_size", 4}, {"dim", 16}, {"depth", 2}, {"heads", 2}, {"classes", 3}});
  const Value::Array narrow{8, 8, 16, 16}, once{1, 1, 1, 1}, two{2, 2, 2, 2};
  const auto pyramid = [&](Value::Table more) {
    Value all(Value::Table{{"image_size", 32}, {"dims", narrow}, {"depths", once}, {"classes", 3}});
    merge(all, Value(std::move(more)));
    return all;
  };
  const Value vil(
      Value::Table{{"image_size", 16}, {"patch_size", 4}, {"dim", 16}, {"depth", 2}, {"classes", 3}});
  return {{"vit", plain},
          {"vil", vil},
          {"vim", vil},
          {"vrwkv", vil},
          {"darl", plain},
          {"illama", plain},
          {"visionllama", plain},
          {"visionllama_pyramid", pyramid({{"heads", two}})},
          {"twins_svt", pyramid({{"heads", two}})},
          {"swin", pyramid({{"heads", two}, {"window_size", 4}, {"image_size", 64}})},
          {"convnext", pyramid({})},
          {"poolformer", pyramid({})},
          {"vil_pyramid", pyramid({{"heads", two}})},
          {"eva02", plain},
          {"resnet", Value(Value::Table{{"image_size", 64}, {"depths", once}, {"classes", 3}})}};
}

ModelSpec with_channels(const Small& model, int64_t channels) {
  Value all = model.settings;
  all.set("in_channels", channels);
  return resolve_model(model.family, all);
}

// Returns a model of other channels with the weights of `colour`, its kernels fitted.
std::shared_ptr<Classifier> fitted(const Small& model, const Classifier& colour, int64_t channels) {
  const auto other = lively(with_channels(model, channels), 0);
  const torch::NoGradGuard no_grad;
  const auto theirs = colour.backbone->named_parameters();
  for (auto& item : other->backbone->named_parameters()) {
    Tensor from = theirs[item.key()];
    if (from.sizes() != item.value().sizes()) {
      Tensor fit = other->backbone->fit(item.key(), from);
      from = fit.defined() ? fit : fit_input_channels(from, item.value().sizes());
    }
    item.value().copy_(from);
  }
  return other;
}

TEST(InputChannels, GrayImagesGiveWhatTheyGaveInColour) {
  const torch::NoGradGuard no_grad;
  for (const Small& model : small_models()) {
    const auto colour = lively(with_channels(model, 3), 0.1), gray = fitted(model, *colour, 1);
    const int64_t side = model.settings.find("image_size")->as_int();
    const Tensor image = torch::randn({2, 1, side, side}, torch::kFloat64);
    const Tensor expected = colour->backbone->embed(image.expand({2, 3, side, side}));
    EXPECT_TRUE(torch::allclose(gray->backbone->embed(image), expected, 1e-9, 1e-10)) << model.family;
  }
}

TEST(InputChannels, RepeatedColoursGiveWhatTheyGaveOnce) {
  const torch::NoGradGuard no_grad;
  for (const Small& model : small_models()) {
    const auto colour = lively(with_channels(model, 3), 0.1), six = fitted(model, *colour, 6);
    const int64_t side = model.settings.find("image_size")->as_int();
    const Tensor image = torch::randn({2, 3, side, side}, torch::kFloat64);
    EXPECT_TRUE(torch::allclose(six->backbone->embed(image.repeat({1, 2, 1, 1})),
                                colour->backbone->embed(image), 1e-9, 1e-10))
        << model.family;
  }
}

TEST(InputChannels, OtherKernelsAreLeftAlone) {
  EXPECT_FALSE(fit_input_channels(torch::zeros({8, 3, 4, 4}), {8, 3, 4, 4}).defined());
  EXPECT_FALSE(fit_input_channels(torch::zeros({8, 1, 4, 4}), {8, 4, 4, 4}).defined());
  EXPECT_FALSE(fit_input_channels(torch::zeros({8, 3, 4, 4}), {8, 1, 2, 2}).defined());
  EXPECT_EQ(fit_input_channels(torch::ones({8, 3, 4, 4}), {8, 5, 4, 4})[0][4][0][0].item<double>(), 0.6f);
}

TEST(InputChannels, ImagesOfOthersAreRefused) {
  try {
    build_backbone(with_channels(small_models()[0], 4), 0)->embed(torch::zeros({1, 3, 16, 16}));
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("must be [batch, 4, height, width]"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::models::input_channels_test
