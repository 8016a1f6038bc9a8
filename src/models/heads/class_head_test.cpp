#include <gtest/gtest.h>

#include "core/error.h"
#include "models/backbones/models_testing.h"
#include "models/heads/class_head.h"
#include "models/heads/feature_pyramid.h"

namespace tessera::models {
namespace {

using torch::Tensor;

ModelSpec small(const char* family, Value::Table extra = {}) {
  const Value full = resolve_model(family).settings;
  Value all(Value::Table{{"image_size", 16}, {"classes", 3}});
  if (full.find("patch_size")) all.set("patch_size", 4);
  if (full.find("global_blocks")) all.set("global_blocks", Value::Array{});
  const bool stages = full.find("dims") != nullptr;
  for (const char* key : {"dim", "heads", "depth"})
    if (!stages && full.find(key)) all.set(key, key == std::string("dim") ? 16 : 2);
  if (stages) {
    all.set("dims", Value::Array{8, 16});
    if (full.find("depths")) all.set("depths", Value::Array{1, 1});
    all.set("image_size", 32);
    if (const Value* heads = full.find("heads"); heads && heads->is_array())
      all.set("heads", Value::Array{2, 2});
    for (const char* key : {"windows", "sub_sampling"})
      if (full.find(key)) all.set(key, Value::Array{2, 1});
    if (full.find("strides")) all.set("strides", Value::Array{2}), all.set("head_width", 6);
    if (full.find("rope_anchor")) all.set("rope_anchor", Value::Array{8.0, 4.0});
  }
  if (full.find("probe_layers")) all.set("probe_layers", 1);
  if (full.find("head_bias")) all.set("head_bias", true);
  merge(all, Value(std::move(extra)));
  return resolve_model(family, all);
}

std::vector<std::string> names_of(const Classifier& model) {
  return model.backbone->named_parameters().keys();
}

TEST(ClassHead, KeepsItsPublishedNameAndPlace) {
  for (const Family& family : families()) {
    const auto model = build_classifier(small(family.name.c_str()), 1);
    const std::map<std::string, std::string> published = {{"resnet", "fc"},         {"swin", "head.fc"},
                                                          {"convnext", "head.fc"},  {"poolformer", "head.fc"},
                                                          {"vanillanet", "cls2.0"}, {"aim", "head.linear"}};
    const auto found = published.find(family.name);
    const std::string name = found == published.end() ? "head" : found->second;
    EXPECT_EQ(model->head().tensor_names(), (std::vector<std::string>{name + ".weight", name + ".bias"}));
    // VisionLLaMA's head precedes parameters that were added to the family later.
    const std::vector<std::string> names = names_of(*model);
    const auto at = std::find(names.begin(), names.end(), name + ".weight");
    EXPECT_EQ(at + 2 == names.end(), family.name != "visionllama") << family.name;
    // A new head comes after everything else.
    model->reset_head(7);
    EXPECT_EQ(names_of(*model).end()[-2], name + ".weight") << family.name;
    EXPECT_EQ(model->backbone->named_parameters()[name + ".weight"].size(0), 7);
    model->reset_head(0);
    EXPECT_EQ(names_of(*model).size(), names.size() - 2) << family.name;
    EXPECT_EQ(names_of(*build_classifier(small(family.name.c_str(), {{"classes", 0}}), 1)), names_of(*model));
  }
}

// A head is drawn by seed and name, so that the time of its creation does not matter.
TEST(ClassHead, IsTheSameWheneverItIsMade) {
  for (const char* family : {"vit", "vil", "darl", "swin", "visionllama"}) {
    const ModelSpec spec = small(family);
    const auto first = build_classifier(spec, 5);
    const Classifier second(build_backbone(spec, 5), class_head_options(spec), 5);
    const auto third = build_classifier(spec, 5, Init::skip);
    third->reset_head(3);
    for (const std::string& name : first->head().tensor_names()) {
      const Tensor drawn = first->backbone->named_parameters()[name];
      EXPECT_TRUE(torch::equal(drawn, second.backbone->named_parameters()[name])) << family << name;
      EXPECT_TRUE(torch::equal(drawn, third->backbone->named_parameters()[name])) << family << name;
      EXPECT_EQ(drawn.abs().max().item<double>() > 0, name.ends_with("weight")) << family << name;
    }
  }
}

TEST(ClassHead, DistilledModelsHaveTwo) {
  const torch::NoGradGuard no_grad;
  const auto model = lively(small("vit", {{"distilled", true}}), 0.3);
  EXPECT_EQ(model->head().tensor_names(),
            (std::vector<std::string>{"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}));
  const Tensor x = torch::randn({2, 3, 16, 16}, torch::kFloat64);
  const auto scores = model->forward_heads(x), vectors = model->backbone->read_outs(x);
  ASSERT_EQ(scores.size(), 2u);
  const auto parameters = model->backbone->named_parameters();
  EXPECT_TRUE(torch::allclose(
      scores[1], torch::linear(vectors[1], parameters["head_dist.weight"], parameters["head_dist.bias"])));
  EXPECT_FALSE(torch::allclose(scores[0], scores[1]));
  EXPECT_TRUE(torch::equal(model->forward(x), (scores[0] + scores[1]) / 2));
  EXPECT_TRUE(torch::allclose((vectors[0] + vectors[1]) / 2, model->backbone->embed(x)));
  EXPECT_EQ(model->macs(16, 16) - model->backbone->macs(16, 16), 2 * 3 * 16);
  model->reset_head(0);
  EXPECT_TRUE(torch::equal(model->forward(x), model->backbone->embed(x)));
}

TEST(ClassHead, ItsSettingsStandWhereTheyHaveAlwaysStood) {
  for (const Family& family : families()) {
    const Value::Table all = resolve_model(family.name).settings.as_table();
    const auto classes =
        std::find_if(all.begin(), all.end(), [](const auto& e) { return e.first == "classes"; });
    ASSERT_LT(classes, all.end() - 1) << family.name;
    EXPECT_TRUE((classes + 1)->first == "dim" || (classes + 1)->first == "dims") << family.name;
    EXPECT_EQ(classes->second.as_int(), 1000);
    const bool probes = family.name == "visionllama" || family.name == "darl";
    EXPECT_EQ(all.back().first == "head_batch_norm", probes) << family.name;
  }
  try {
    small("vit", {{"classes", -1}});
    ADD_FAILURE() << "-1 classes were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "model.classes = -1, must be 0 to 16777216");
    EXPECT_EQ(error.kind, ErrorKind::usage);
  }
  EXPECT_THROW(small("vit", {{"head_batch_norm", true}}), Error);
}

}  // namespace

namespace {

// A one-pixel image has a grid of one cell, a thin image a row of cells.
TEST(Feature2Pyramid, GridsOfOneCellArePooledToOne) {
  Feature2Pyramid pyramid(4, {1, 0.5, 0.25});
  const torch::NoGradGuard no_grad;
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {1, 60}, {3, 2}}) {
    const torch::Tensor grid = torch::randn({1, 4, rows, columns});
    const auto maps = pyramid.forward({grid, grid, grid}, {});
    EXPECT_EQ(maps[1].sizes().vec(), (std::vector<int64_t>{1, 4, std::max<int64_t>(1, rows / 2),
                                                           std::max<int64_t>(1, columns / 2)}));
    EXPECT_EQ(maps[2].size(2), std::max<int64_t>(1, rows / 4));
    EXPECT_TRUE(torch::equal(maps[0], grid));
  }
}

}  // namespace

}  // namespace tessera::models
