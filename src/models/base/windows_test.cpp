// Properties of windows, for every plain family that has them.
#include "models/base/windows.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/backbones/models_testing.h"

namespace tessera::models::windows_test {
namespace {

using torch::Tensor;

struct Form {
  const char* family;
  Value::Table settings;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"visionllama", {{"class_token", false}}},
      {"visionllama", {{"class_token", false}, {"auto_scale", true}, {"rope_anchor", 16.0}}},
      {"visionllama", {{"class_token", true}}},
      {"illama", {{"mask", "after"}}},
      {"illama", {{"mask", "before"}}},
      {"illama", {{"mask", "none"}, {"class_token", "first"}}},
      {"vil", {{"conv_kind", "2d"}}},
      {"vil1", {{"traversal", "in_layer"}}},
      {"vitdet", {{"class_position", false}, {"position_grid", 4}}},
  };
  return all;
}

std::shared_ptr<Backbone> build(const Form& form, const Value::Table& windows, double amount = 0.2) {
  Value all(Value::Table{
      {"dim", 16}, {"heads", 2}, {"depth", 2}, {"patch_size", 4}, {"image_size", 16}, {"classes", 0}});
  for (const auto& [key, value] : form.settings) all.set(key, value);
  for (const auto& [key, value] : windows) all.set(key, value);
  const std::shared_ptr<Backbone> model = build_classifier(resolve_model(form.family, all), 1)->backbone;
  model->to(torch::kFloat64);
  model->eval();
  const torch::NoGradGuard no_grad;
  torch::manual_seed(2);
  for (auto& entry : model->named_parameters())
    if (entry.key().find(".residual.") == std::string::npos)
      entry.value().add_(torch::randn_like(entry.value()), amount);
  return model;
}

Tensor map_of(Backbone& model, const Tensor& images) {
  const torch::NoGradGuard no_grad;
  return model.features(images, {1}, {}).at(0);
}

Tensor images_of(int64_t height, int64_t width) {
  torch::manual_seed(3);
  return torch::randn({2, 3, height, width}, torch::kFloat64);
}

// True if patches see non-patch tokens. Windows separate the two, so that the result stays the same only
// without such tokens, or if no patch sees them. A mask after the softmax divides by the weights of all
// tokens.
bool patches_see_others(const Form& form) {
  for (const auto& [key, value] : form.settings) {
    if (key == "class_token" && !(value.is_bool() && !value.as_bool())) return true;
    if (key == "mask" && value.as_string() == "after") return true;
  }
  return false;
}

TEST(Windows, OneAsLargeAsTheMapChangesNothing) {
  for (const Form& form : forms()) {
    if (patches_see_others(form)) continue;
    const auto whole = build(form, {{"window_size", 0}, {"global_blocks", Value::Array{}}}),
               windows = build(form, {{"window_size", 4}, {"global_blocks", Value::Array{}}});
    const Tensor images = images_of(16, 16);
    EXPECT_TRUE(torch::allclose(map_of(*windows, images), map_of(*whole, images), 1e-9, 1e-9)) << form.family;
  }
}

TEST(Windows, AWindowSeesNothingOfTheOthersUntilABlockSeesTheWholeMap) {
  for (const Form& form : forms()) {
    const Tensor images = images_of(16, 16);
    Tensor changed = images.clone();
    changed.slice(2, 8).slice(3, 8).neg_();  // the last of four windows
    const auto alone = build(form, {{"window_size", 2}, {"global_blocks", Value::Array{}}}),
               joined = build(form, {{"window_size", 2}, {"global_blocks", Value::Array{0, 1}}});
    const Tensor change = (map_of(*alone, changed) - map_of(*alone, images)).abs().amax({0, 1});
    EXPECT_EQ(change.slice(0, 0, 2).max().item<double>(), 0) << form.family;
    EXPECT_EQ(change.slice(0, 2).slice(1, 0, 2).max().item<double>(), 0) << form.family;
    EXPECT_GT(change.slice(0, 2).slice(1, 2).min().item<double>(), 0) << form.family;
    const auto reached = build(form, {{"window_size", 2}, {"global_blocks", Value::Array{0}}});
    if (std::string(form.family) == "illama") continue;  // the last window comes after the others
    const Tensor far = (map_of(*reached, changed) - map_of(*reached, images)).abs().amax({0, 1});
    EXPECT_GT(far.slice(0, 0, 2).slice(1, 0, 2).max().item<double>(), 0) << form.family;
  }
}

TEST(Windows, MapsOfAnySizeKeepItAndEveryParameterLearns) {
  for (const Form& form : forms()) {
    const auto model = build(form, {{"window_size", 3}, {"global_blocks", Value::Array{1}}});
    model->train();
    const Tensor map = model->features(images_of(20, 28), {1}, {}).at(0);
    ASSERT_EQ(map.sizes(), (std::vector<int64_t>{2, 16, 5, 7})) << form.family;
    map.sum().backward();
    EXPECT_GT(model->macs(20, 28), 0);
    for (const auto& entry : model->named_parameters()) {
      if (!entry.key().starts_with("blocks.0.")) continue;
      EXPECT_TRUE(entry.value().grad().defined()) << form.family << " " << entry.key();
    }
  }
}

TEST(Windows, ConvolutionsAddNothingAtFirstAndThenCarryAcrossWindows) {
  for (const Form& form : forms()) {
    const auto plain = build(form, {{"window_size", 2}, {"global_blocks", Value::Array{}}}, 0),
               convs = build(
                   form,
                   {{"window_size", 2}, {"global_blocks", Value::Array{}}, {"conv_blocks", Value::Array{0}}},
                   0);
    const Tensor images = images_of(16, 16);
    // Parameters are drawn by their names: both models have the same.
    EXPECT_TRUE(torch::allclose(map_of(*convs, images), map_of(*plain, images), 1e-12, 1e-12)) << form.family;
    const torch::NoGradGuard no_grad;
    convs->named_parameters()["blocks.0.residual.norm3.weight"].fill_(1);
    Tensor changed = images.clone();
    changed.slice(2, 8).slice(3, 8).neg_();
    const Tensor far = (map_of(*convs, changed) - map_of(*convs, images)).abs().amax({0, 1});
    EXPECT_GT(far.slice(0, 0, 2).slice(1, 0, 2).max().item<double>(), 0) << form.family;
  }
}

TEST(Windows, RefusesBlocksThatThereAreNot) {
  for (const Form& form : forms())
    for (const char* key : {"global_blocks", "conv_blocks"})
      for (const Value::Array& blocks : {Value::Array{2}, Value::Array{-1}, Value::Array{1, 1}}) {
        const Value::Table windows = {{"window_size", 2}, {"global_blocks", Value::Array{}}, {key, blocks}};
        EXPECT_THROW(build(form, windows), Error) << form.family << " " << key;
      }
  EXPECT_THROW(build({"vil", {{"pooling", "cls_first"}}}, {{"window_size", 2}}), Error);
}

}  // namespace
}  // namespace tessera::models::windows_test
