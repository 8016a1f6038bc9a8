#include "weights/detr_names.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"

namespace tessera::train {
namespace {

TEST(DetrNames, AreTheAuthors) {
  NamedTensors given;
  const auto add = [&](const std::string& name) { given.emplace_back(name, torch::randn({2, 3})); };
  const std::map<std::string, std::string> wanted = {
      {"model.backbone.conv_encoder.model.layer1.0.bn1.bias", "backbone.0.body.layer1.0.bn1.bias"},
      {"model.backbone.conv_encoder.model.embedder.embedder.convolution.weight",
       "backbone.0.body.conv1.weight"},
      {"model.backbone.conv_encoder.model.embedder.embedder.normalization.bias", "backbone.0.body.bn1.bias"},
      {"model.backbone.conv_encoder.model.encoder.stages.2.layers.5.layer.1.convolution.weight",
       "backbone.0.body.layer3.5.conv2.weight"},
      {"model.backbone.conv_encoder.model.encoder.stages.0.layers.0.shortcut.normalization.running_var",
       "backbone.0.body.layer1.0.downsample.1.running_var"},
      {"model.encoder.layers.3.self_attn_layer_norm.weight", "transformer.encoder.layers.3.norm1.weight"},
      {"model.encoder.layers.3.final_layer_norm.weight", "transformer.encoder.layers.3.norm2.weight"},
      {"model.encoder.layers.3.fc2.bias", "transformer.encoder.layers.3.linear2.bias"},
      {"model.decoder.layers.0.encoder_attn_layer_norm.bias", "transformer.decoder.layers.0.norm2.bias"},
      {"model.decoder.layers.0.final_layer_norm.bias", "transformer.decoder.layers.0.norm3.bias"},
      {"model.decoder.layers.0.encoder_attn.out_proj.bias",
       "transformer.decoder.layers.0.multihead_attn.out_proj.bias"},
      {"model.decoder.layernorm.weight", "transformer.decoder.norm.weight"},
      {"model.input_projection.weight", "input_proj.weight"},
      {"model.query_position_embeddings.weight", "query_embed.weight"},
      {"class_labels_classifier.weight", "class_embed.weight"},
      {"bbox_predictor.layers.2.bias", "bbox_embed.layers.2.bias"}};
  for (const auto& [name, authors] : wanted) add(name);
  const NamedTensors found = detr_of_transformers(given);
  ASSERT_EQ(found.size(), given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    EXPECT_EQ(found[i].first, wanted.at(given[i].first));
    EXPECT_TRUE(found[i].second.is_same(given[i].second));
  }
}

TEST(DetrNames, AttentionIsOneProjection) {
  const std::string layer = "model.decoder.layers.1.encoder_attn.";
  const torch::Tensor q = torch::randn({2, 2}), k = torch::randn({2, 2}), v = torch::randn({2, 2});
  const NamedTensors found = detr_of_transformers(
      {{layer + "k_proj.weight", k}, {layer + "q_proj.weight", q}, {layer + "v_proj.weight", v}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].first, "transformer.decoder.layers.1.multihead_attn.in_proj_weight");
  EXPECT_TRUE(found[0].second.equal(torch::cat({q, k, v})));
  EXPECT_THROW(detr_of_transformers({{layer + "q_proj.weight", q}, {layer + "v_proj.weight", v}}), Error);
}

}  // namespace
}  // namespace tessera::train
