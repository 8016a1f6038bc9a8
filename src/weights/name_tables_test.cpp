#include "weights/name_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "models/base/model.h"
#include "weights/stored_tensors.h"

namespace tessera::train {
namespace {

std::string table_name(const NameTable& table) { return table.program() + ", " + table.family(); }

// Returns a random matrix for each name; repeated tensors are equal.
NamedTensors tensors_for(const NameTable& table, const std::vector<std::string>& names) {
  std::map<std::string, torch::Tensor> repeated;
  NamedTensors tensors;
  for (const NamePlace& place : table.ours(names)) {
    torch::Tensor tensor = torch::randn({6, 4});
    if (place.each) tensor = repeated.try_emplace(place.ours, tensor).first->second;
    if (tensors.empty() || tensors.back().first != place.theirs) tensors.emplace_back(place.theirs, tensor);
  }
  return tensors;
}

NamedTensors read_by(const NameTable& table, const NamedTensors& theirs) {
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : theirs)
    views.push_back({name,
                     DType::f32,
                     tensor.sizes().vec(),
                     {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
  NamedTensors ours;
  const StoredTensors stored(views, table.ours(names_of(views)), "a file");
  for (const StoredTensor& one : stored.tensors()) ours.emplace_back(one.name(), one.read());
  return ours;
}

// Property of all tables: reading and writing restores every byte.
TEST(NameTables, ReadAndWrittenAgainATensorIsTheSame) {
  for (const NameTable& table : name_tables())
    for (const bool several : {true, false}) {
      SCOPED_TRACE(table_name(table) + (several ? ", several" : ", one"));
      const std::vector<std::string> names = table.sample(several);
      const NamedTensors theirs = tensors_for(table, names),
                         back = by_names_of(table, read_by(table, theirs));
      const std::map<std::string, torch::Tensor> found(back.begin(), back.end());
      EXPECT_EQ(found.size(), theirs.size());
      for (const auto& [name, tensor] : theirs) {
        ASSERT_TRUE(found.contains(name)) << name;
        EXPECT_TRUE(torch::equal(found.at(name), tensor)) << name;
      }
    }
}

// Merged with the tables of its family, a table gives the same result as alone.
TEST(NameTables, ProgramsOfAFamilyAreToldApart) {
  const std::set<std::string> towers = {"clip", "siglip"};  // distinguished by other names in the file
  for (const NameTable& table : name_tables()) {
    if (towers.contains(table.family()) || table.family() == "segment" || table.family() == "detect")
      continue;
    const std::vector<std::string> names = table.sample(true);
    const std::vector<NamePlace> alone = table.ours(names),
                                 among = names_of_family(table.family()).ours(names);
    ASSERT_EQ(alone.size(), among.size()) << table_name(table);
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_EQ(alone[i].ours, among[i].ours) << table_name(table) << ": " << alone[i].theirs;
  }
}

TEST(NameTables, OurNamesStay) {
  Value one_class;
  one_class.set("classes", 1);
  for (const models::Family& family : models::families()) {
    std::vector<std::string> names;
    const auto model = models::meta_backbone(models::resolve_model(family.sizes.front().name, one_class));
    for (const auto& [name, tensor] : named_state(*model)) names.push_back(name);
    EXPECT_EQ(our_names(names, family.name), names) << family.name;
  }
}

struct Known {
  const char *family, *theirs, *ours;
};

TEST(NameTables, PublishedNamesAreKnown) {
  for (const auto& [family, theirs, ours] : std::vector<Known>{
           {"vit", "encoder.layers.encoder_layer_11.self_attention.in_proj_weight",
            "blocks.11.attn.qkv.weight"},
           {"vit", "encoder.layers.encoder_layer_0.mlp.3.bias", "blocks.0.mlp.fc2.bias"},
           {"vit", "encoder.layers.encoder_layer_0", "encoder.layers.encoder_layer_0"},
           {"vit", "blocks.3.attn.relative_position_index", ""},
           {"resnet", "visual.layer1.0.downsample.0.weight", "layer1.0.downsample.0.weight"},
           {"resnet", "visual.attnpool.positional_embedding", "attnpool.positional_embedding"},
           {"resnet", "layer1.0.bn1.num_batches_tracked", ""},
           {"resnet", "backbone.bottom_up.stem.conv1.weight", "conv1.weight"},
           {"resnet", "stem.conv1.norm.running_mean", "bn1.running_mean"},
           {"resnet", "backbone.bottom_up.res5.12.conv3.norm.bias", "layer4.12.bn3.bias"},
           {"resnet", "res3.0.shortcut.weight", "layer2.0.downsample.0.weight"},
           {"resnet", "res3.0.shortcut.norm.weight", "layer2.0.downsample.1.weight"},
           {"resnet", "conv1_w", "conv1.weight"},
           {"resnet", "conv1_b", ""},
           {"resnet", "res_conv1_bn_s", "bn1.weight"},
           {"resnet", "res5_12_branch2c_bn_b", "layer4.12.bn3.bias"},
           {"resnet", "res3_0_branch1_bn_riv", "layer2.0.downsample.1.running_var"},
           {"resnet", "res2_0_branch2b_bn_running_mean", "layer1.0.bn2.running_mean"},
           {"resnet", "res2_0_branch2b_bn_gamma", "layer1.0.bn2.weight"},
           {"resnet", "fc1000_b", "fc.bias"},
           {"resnet", "pred_w", "fc.weight"},
           {"resnet", "res2_0_branch2a_w_momentum", ""},
           {"resnet", "stem.4.bias", "bn2.bias"},
           {"resnet", "stem.7.running_var", "bn3.running_var"},
           {"resnet", "head.fc.weight", "fc.weight"},
           {"resnet", "transformer.resblocks.0.ln_1.weight", ""},
           {"convnext", "downsample_layers.0.1.bias", "stem.1.bias"},
           {"vit", "vit.encoder.layer.11.attention.attention.key.weight", "blocks.11.attn.qkv.weight"},
           {"vit", "encoder.layer.0.output.dense.bias", "blocks.0.mlp.fc2.bias"},
           {"vit", "vit.layers.11.attention.k_proj.weight", "blocks.11.attn.qkv.weight"},
           {"vit", "deit.layers.0.attention.o_proj.bias", "blocks.0.attn.proj.bias"},
           {"vit", "beit.layers.3.mlp.fc1.bias", "blocks.3.mlp.fc1.bias"},
           {"vit", "beit.layers.3.relative_position_bias.relative_position_bias_table",
            "blocks.3.attn.relative_position_bias_table"},
           {"vit", "beit.shared_position_bias.relative_position_bias_table",
            "rel_pos_bias.relative_position_bias_table"},
           {"vit", "dinov2.encoder.layer.2.attention.q_proj.weight", "blocks.2.attn.qkv.weight"},
           {"swin", "swin.encoder.layers.1.blocks.0.attention.v_proj.weight",
            "layers.1.blocks.0.attn.qkv.weight"},
           {"swin",
            "swin.encoder.layers.1.blocks.0.attention.relative_position_bias.relative_position_bias_table",
            "layers.1.blocks.0.attn.relative_position_bias_table"},
           {"vit", "deit.embeddings.distillation_token", "reg_token"},
           {"vit", "beit.encoder.layer.2.lambda_1", "blocks.2.ls1.gamma"},
           {"vit", "beit.pooler.layernorm.weight", "fc_norm.weight"},
           {"vit", "beit.encoder.relative_position_bias.relative_position_bias_table",
            "rel_pos_bias.relative_position_bias_table"},
           {"swin", "swin.encoder.layers.1.blocks.0.attention.self.relative_position_bias_table",
            "layers.1.blocks.0.attn.relative_position_bias_table"},
           {"convnext", "convnextv2.encoder.stages.2.layers.10.grn.weight",
            "stages.2.blocks.10.mlp.grn.weight"},
           {"convnext", "convnext.encoder.stages.3.downsampling_layer.1.bias", "stages.3.downsample.1.bias"},
           {"resnet", "resnet.encoder.stages.3.layers.2.layer.0.convolution.weight", "layer4.2.conv1.weight"},
           {"resnet", "resnet.encoder.stages.0.layers.0.shortcut.normalization.running_var",
            "layer1.0.downsample.1.running_var"},
           {"convnext", "downsample_layers.3.0.weight", "stages.3.downsample.0.weight"},
           {"convnext", "stages.2.10.pwconv2.bias", "stages.2.blocks.10.mlp.fc2.bias"},
           {"convnext", "stages.0.1.gamma", "stages.0.blocks.1.gamma"},
           {"convnext", "stages.0.1.grn.gamma", "stages.0.blocks.1.mlp.grn.weight"},
           {"convnext", "norm.weight", "head.norm.weight"},
           {"poolformer", "patch_embed.proj.bias", "stem.conv.bias"},
           {"poolformer", "network.5.proj.weight", "stages.3.downsample.conv.weight"},
           {"poolformer", "network.4.11.layer_scale_2", "stages.2.blocks.11.layer_scale2.scale"},
           {"poolformer", "network.0.1.mlp.fc1.weight", "stages.0.blocks.1.mlp.fc1.weight"},
           {"poolformer", "norm.weight", "head.norm.weight"},
           {"poolformer", "head.bias", "head.fc.bias"},
           {"poolformer", "poolformer.encoder.patch_embeddings.0.projection.bias", "stem.conv.bias"},
           {"poolformer", "poolformer.encoder.patch_embeddings.2.projection.weight",
            "stages.2.downsample.conv.weight"},
           {"poolformer", "poolformer.encoder.block.2.11.layer_scale_2",
            "stages.2.blocks.11.layer_scale2.scale"},
           {"poolformer", "classifier.bias", "head.fc.bias"},
           {"aim", "preprocessor.patchifier.norm.bias", "patch_embed.norm.bias"},
           {"aim", "trunk.blocks.23.norm_2.weight", "blocks.23.norm2.weight"},
           {"aim", "trunk.blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.weight"},
           {"aim", "trunk.post_trunk_norm.weight", "norm.weight"},
           {"convnext", "features.0.0.weight", "stem.0.weight"},
           {"convnext", "features.6.1.bias", "stages.3.downsample.1.bias"},
           {"convnext", "features.5.8.block.3.weight", "stages.2.blocks.8.mlp.fc1.weight"},
           {"convnext", "features.5.8.layer_scale", "stages.2.blocks.8.gamma"},
           {"vil", "xlstm.blocks.5.xlstm.conv1d.weight", "blocks.2.rowwise_from_bot_right.layer.conv.weight"},
           {"vil", "blocks.4.xlstm.conv1d_k.bias", "blocks.2.rowwise_from_top_left.layer.conv_k.bias"},
           {"vil", "xlstm.post_blocks_norm.weight", "norm.weight"},
           {"vil1", "xlstm.blocks.5.xlstm.conv1d.conv.weight", "blocks.5.layer.conv1d.conv.weight"},
           {"vil1", "blocks.4.xlstm_norm.weight", "blocks.4.norm.weight"},
           {"detect", "backbone.fpn.inner_blocks.2.0.weight", "neck.lateral.2.weight"},
           {"detect", "neck.fpn_convs.1.conv.weight", "neck.output.1.weight"},
           {"detect", "backbone.fpn_lateral3.norm.weight", "neck.lateral.1.norm.weight"},
           {"detect", "backbone.simfp_2.4.norm.bias", "neck.simfp_2.4.norm.bias"},
           {"detect", "proposal_generator.rpn_head.conv.conv1.weight", "rpn.conv.1.weight"},
           {"detect", "proposal_generator.rpn_head.conv.weight", "rpn.conv.0.weight"},
           {"detect", "roi_heads.box_head.fc7.weight", "roi_heads.box_head.0.fc.1.weight"},
           {"detect", "roi_heads.box_head.2.conv1.norm.weight", "roi_heads.box_head.2.conv.0.norm.weight"},
           {"detect", "roi_head.bbox_head.fc_cls.weight", "roi_heads.box_predictor.0.cls_score.weight"},
           {"detect", "roi_heads.mask_head.mask_fcn2.weight", "roi_heads.mask_head.0.conv.1.weight"},
           {"detr", "model.backbone.conv_encoder.model.embedder.embedder.convolution.weight",
            "backbone.0.body.conv1.weight"},
           {"detr", "model.backbone.conv_encoder.model.encoder.stages.2.layers.5.layer.1.convolution.weight",
            "backbone.0.body.layer3.5.conv2.weight"},
           {"detr", "model.decoder.layers.0.final_layer_norm.bias",
            "transformer.decoder.layers.0.norm3.bias"}})
    EXPECT_EQ(our_name(theirs, family), ours) << family << ": " << theirs;
}

TEST(NameTables, AFileDecidesWhatItsNamesMean) {
  EXPECT_EQ(our_names({"first_stage_model.encoder.conv_in.weight", "model.diffusion_model.x", "loss.logvar",
                       "model_ema.decay"},
                      "autoencoder_kl"),
            (std::vector<std::string>{"encoder.conv_in.weight", "", "", ""}));
  // Levels count from the coarsest.
  EXPECT_EQ(
      our_names({"decoder.up_blocks.0.resnets.1.conv1.weight", "decoder.up_blocks.3.resnets.0.conv1.bias"},
                "autoencoder_kl"),
      (std::vector<std::string>{"decoder.up.3.block.1.conv1.weight", "decoder.up.0.block.0.conv1.bias"}));
}

// CLIP's classifier has no last norm, SigLIP's no pooling.
TEST(NameTables, ClassifiersOfClipAndSiglipLeaveOutWhatTheyDoNotRead) {
  const auto table = std::ranges::find_if(name_tables(), [](const NameTable& one) {
    return one.program() == "transformers" && one.family() == "vit";
  });
  const std::string part = "vision_model.", norm = part + "post_layernorm.weight",
                    bias = part + "embeddings.patch_embedding.bias", probe = part + "head.probe";
  const auto ours = [&](std::vector<std::string> theirs) {
    std::vector<std::string> names;
    for (const NamePlace& place : table->ours(theirs)) names.push_back(place.ours);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(ours({norm, "classifier.weight"}), (Names{"", "head.weight"}));
  EXPECT_EQ(ours({norm, bias, probe, "classifier.weight"}),
            (Names{"norm.weight", "patch_embed.proj.bias", "", "head.weight"}));
  EXPECT_EQ(ours({norm, bias, probe}), (Names{"norm.weight", "patch_embed.proj.bias", "attn_pool.latent"}));
}

TEST(NameTables, PartsComeInAnyOrder) {
  const std::string layer = "vision_model.encoder.layers.0.self_attn.";
  const NameTable& table = *find_name_table("transformers", "clip");
  const auto sources = sources_of(table.ours({layer + "k_proj.bias", layer + "v_proj.bias",
                                              layer + "q_proj.bias", "text_model.final_layer_norm.weight"}));
  ASSERT_EQ(sources.size(), 2u);
  ASSERT_EQ(sources[0].parts.size(), 3u);
  EXPECT_TRUE(sources[0].parts[0].theirs.ends_with("q_proj.bias"));
  EXPECT_THROW(sources_of(table.ours({layer + "q_proj.bias", layer + "v_proj.bias"})), Error);
  EXPECT_THROW(sources_of(names_of_family("resnet").ours({"conv1_w", "stem.conv1.weight"})), Error);
}

// BEiT has no bias of keys, on disk and in memory.
TEST(NameTables, ABiasOfKeysMayBeMissing) {
  for (const std::string attention :
       {"beit.encoder.layer.0.attention.attention.", "beit.layers.0.attention."}) {
    const bool memory = attention.find("encoder") == std::string::npos;
    const auto sources =
        sources_of(names_of_family("vit").ours({attention + (memory ? "q_proj.bias" : "query.bias"),
                                                attention + (memory ? "v_proj.bias" : "value.bias")}));
    ASSERT_EQ(sources.size(), 1u) << attention;
    EXPECT_EQ(sources[0].ours, "blocks.0.attn.qkv.bias");
    EXPECT_EQ(sources[0].parts.size(), 2u);
  }
}

TEST(NamePatterns, NumbersAreCountedAsTheProgramDoes) {
  const auto filled = [](const char* theirs, const char* ours, const std::string& name) {
    const auto captures = NamePattern(theirs).match(name, 4);
    return captures ? NamePattern(ours).fill(*captures, 4) : "";
  };
  EXPECT_EQ(filled("res{+1}.x", "layer{}.x", "res3.x"), "layer2.x");
  EXPECT_EQ(filled("res{+1}.x", "layer{}.x", "res0.x"), "");
  EXPECT_EQ(filled("f.{*2+1}.**", "s.{}.**", "f.7.a.b"), "s.3.a.b");
  EXPECT_EQ(filled("f.{*2+1}.**", "s.{}.**", "f.6.a.b"), "");
  EXPECT_EQ(filled("up.{-}.*", "up.{}.*", "up.1.w"), "up.2.w");
  EXPECT_EQ(filled("up.{-}.*", "up.{}.*", "up.4.w"), "");
  EXPECT_EQ(filled("a.*", "b.*", "a.b.c"), "");
  EXPECT_EQ(filled("a.{}", "b.{}", "a.007"), "");
}

}  // namespace
}  // namespace tessera::train
