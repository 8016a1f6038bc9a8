#include <torch/nn/modules/linear.h>

#include "optim/optimiser_groups.h"

#include <gtest/gtest.h>
#include "ops/torch.h"

#include <algorithm>
#include <map>
#include <memory>

#include "core/error.h"
#include "core/value.h"
#include "models/heads/class_head.h"

namespace tessera::train {
namespace {

using Layers = std::vector<int64_t>;

TEST(ParameterGroups, OneDimensionBiasesAndNamedExceptionsTakeNoDecay) {
  const NamedTensors parameters = {{"pos_embed", torch::zeros({1, 4, 8})},
                                   {"fc.weight", torch::zeros({8, 8})},
                                   {"fc.bias", torch::zeros({8})},
                                   {"heads.bias", torch::zeros({2, 8})},
                                   {"gate", torch::zeros({})}};
  const auto groups =
      make_parameter_groups(parameters, {.weight_decay = 0.3, .no_decay = {"pos_embed", "cls_token"}});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].weight_decay, 0);
  EXPECT_EQ(groups[0].parameters.size(), 4u);
  EXPECT_EQ(groups[1].weight_decay, 0.3);
  ASSERT_EQ(groups[1].parameters.size(), 1u);
  EXPECT_EQ(groups[1].parameters[0].first, "fc.weight");
  for (const ParameterGroup& group : groups) EXPECT_EQ(group.lr_scale, 1);
}

TEST(ParameterGroups, FrozenParametersAreLeftOut) {
  torch::nn::Linear module(3, 4);
  module->bias.requires_grad_(false);
  const auto groups = make_parameter_groups(*module, GroupOptions{});
  ASSERT_EQ(groups.size(), 1u);
  ASSERT_EQ(groups[0].parameters.size(), 1u);
  EXPECT_EQ(groups[0].parameters[0].first, "weight");
  EXPECT_TRUE(groups[0].parameters[0].second.is_same(module->weight));
}

TEST(ParameterGroups, LayersFollowDepth) {
  EXPECT_EQ(
      layer_of_each({"cls_token", "patch_embed.proj.weight", "blocks.0.mlp.fc1.weight", "blocks.10.ls1.gamma",
                     "blocks.2.norm1.bias", "norm.weight", "fc_norm.weight", "head.bias"}),
      (Layers{0, 0, 1, 3, 2, 3, 4, 4}));
}

TEST(ParameterGroups, StagesComeBeforeTheirBlocks) {
  EXPECT_EQ(layer_of_each({"patch_embed.norm.bias", "layers.0.blocks.0.attn.qkv.weight",
                           "layers.0.blocks.1.norm1.bias", "layers.1.downsample.norm.bias",
                           "layers.1.blocks.0.norm1.bias", "norm.bias", "head.fc.bias"}),
            (Layers{0, 1, 2, 3, 3, 3, 4}));
}

TEST(ParameterGroups, ConvolutionalStagesAreInDepthsOrder) {
  EXPECT_EQ(
      layer_of_each({"conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "layer1.0.downsample.1.weight",
                     "layer1.1.bn2.bias", "layer2.0.conv3.weight", "fc.weight"}),
      (Layers{0, 0, 1, 1, 2, 3, 4}));
  EXPECT_EQ(layer_of_each({"stem.0.weight", "stages.0.blocks.0.gamma", "stages.0.blocks.1.gamma",
                           "stages.1.downsample.0.weight", "stages.1.downsample.1.weight",
                           "stages.1.blocks.0.conv_dw.weight", "stages.1.blocks.1.norm.bias",
                           "head.norm.weight", "head.fc.weight"}),
            (Layers{0, 1, 2, 3, 3, 3, 4, 5, 5}));
}

TEST(ParameterGroups, AStagesNormGoesWithItsLastBlock) {
  EXPECT_EQ(layer_of_each({"patch_embeds.0.proj.weight", "blocks.0.0.norm1.bias", "blocks.0.1.norm1.bias",
                           "patch_embeds.1.proj.weight", "blocks.1.0.norm1.bias", "norm_list.0.weight",
                           "norm_list.1.weight", "head.bias"}),
            (Layers{0, 1, 2, 3, 3, 2, 3, 4}));
}

// Its first version names them the other way round.
TEST(ParameterGroups, OfVisionLstmsTwoLastNormsTheSecondIsTheHeads) {
  EXPECT_EQ(layer_of_each({"blocks.0.norm.weight", "norm.weight", "legacy_norm.weight", "head.bias"}),
            (Layers{0, 0, 1, 1}));
  EXPECT_EQ(layer_of_each({"blocks.0.norm.weight", "legacy_norm.weight", "norm.weight", "head.bias"}),
            (Layers{0, 0, 1, 1}));
}

std::map<std::string, double> scales_of(const std::vector<ParameterGroup>& groups) {
  std::map<std::string, double> scales;
  for (const ParameterGroup& group : groups)
    for (const auto& [name, tensor] : group.parameters) scales[name] = group.lr_scale;
  return scales;
}

TEST(ParameterGroups, FreezingLeavesTheRatesOfTheOthers) {
  const auto model = models::meta_classifier(models::resolve_model("vit_tiny_patch16_224"))->backbone;
  const GroupOptions options = {.layer_decay = 0.5};
  auto expected = scales_of(make_parameter_groups(*model, options));
  for (const auto& item : model->named_parameters())
    if (!item.key().starts_with("blocks.3.") && !item.key().starts_with("patch_embed"))
      item.value().set_requires_grad(false), expected.erase(item.key());
  EXPECT_EQ(scales_of(make_parameter_groups(*model, options)), expected);
}

// In every family the parameters before the first block belong to the stem. Only final norms (the last of
// Vision-LSTM's) and heads have the full rate.
TEST(ParameterGroups, EveryFamilysParametersHaveTheirPlace) {
  for (const models::Family& family : models::families()) {
    if (family.name == "dalle") continue;  // a tokeniser, which is not fine-tuned
    for (const char* settings : {"", "peg = true", "pooling = 'cls_first'", "two_stream = true"}) {
      std::shared_ptr<models::Backbone> model;
      try {
        model = models::meta_classifier(
                    models::resolve_model(family.sizes.front().name, parse_toml(settings, "settings")))
                    ->backbone;
      } catch (const Error&) {
        continue;  // this family lacks the option
      }
      std::vector<std::string> names;
      for (const auto& parameter : model->named_parameters()) names.push_back(parameter.key());
      const Layers layers = layer_of_each(names);
      const int64_t top = *std::max_element(layers.begin(), layers.end());
      for (size_t i = 0; i < names.size(); ++i) {
        const bool ends = names[i].starts_with("head") || names[i].starts_with("fc") ||
                          names[i].starts_with("cls1") || names[i].starts_with("cls2") ||
                          names[i].starts_with("final_layer") ||
                          names[i].starts_with(family.name == "vil1" ? "norm" : "legacy_norm");
        EXPECT_EQ(layers[i] == top, ends) << family.name << " " << names[i];
      }
    }
  }
}

TEST(ParameterGroups, RulesOfOnesOwnAreLaidOverTheRest) {
  const NamedTensors parameters = {{"blocks.0.w", torch::zeros({2, 2})},
                                   {"blocks.0.bias", torch::zeros({2})},
                                   {"head.weight", torch::zeros({2, 2})}};
  std::map<std::string, std::pair<double, double>> found;
  const GroupOptions options = {.weight_decay = 0.1,
                                .layer_decay = 0.5,
                                .rules = {{.pattern = "head.*", .lr_scale = 10},
                                          {.pattern = "*.bias", .lr_scale = 2, .weight_decay = 0.3},
                                          {.pattern = "blocks.*", .lr_scale = 3}}};
  for (const ParameterGroup& group : make_parameter_groups(parameters, options))
    for (const auto& [name, tensor] : group.parameters) found[name] = {group.lr_scale, group.weight_decay};
  EXPECT_EQ(found["blocks.0.w"], std::pair(0.5 * 3, 0.1));
  EXPECT_EQ(found["blocks.0.bias"], std::pair(0.5 * 6, 0.3));
  EXPECT_EQ(found["head.weight"], std::pair(10.0, 0.1));
  try {
    make_parameter_groups(parameters, {.rules = {{.pattern = "heed.weight"}}});
    FAIL() << "a rule that matches nothing was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "optimiser.groups: no parameter matches 'heed.weight', did you mean 'head.weight'? "
                 "(`tessera inspect` lists the names)");
  }
}

TEST(ParameterGroups, RatesFallByTheSameFactorFromLayerToLayer) {
  const NamedTensors parameters = {{"pos_embed", torch::zeros({1, 2, 2})},
                                   {"blocks.0.w", torch::zeros({2, 2})},
                                   {"blocks.1.w", torch::zeros({2, 2})},
                                   {"head.weight", torch::zeros({2, 2})}};
  EXPECT_EQ(scales_of(make_parameter_groups(parameters, {.layer_decay = 0.5, .min_scale = 0.2})),
            (std::map<std::string, double>{
                {"pos_embed", 0.2}, {"blocks.0.w", 0.25}, {"blocks.1.w", 0.5}, {"head.weight", 1}}));
}

}  // namespace
}  // namespace tessera::train
