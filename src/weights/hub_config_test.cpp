#include "weights/hub_config.h"

#include <gtest/gtest.h>

#include "io/files/file.h"
#include "io/files/io_testing.h"

namespace tessera::train {
namespace {

class HubConfigTest : public TemporaryFolder {
 protected:
  PublishedFolder with(const std::string& name, const std::string& json) const {
    write_text_atomic(path(name), json);
    return PublishedFolder(path("model.safetensors"));
  }
  HubConfig timm(const std::string& json) const {
    PublishedFolder folder = with("config.json", json);
    return read_hub_config(folder).value();
  }
  std::string refusal(const std::string& arguments,
                      const std::string& architecture = "vit_tiny_patch16_224") const {
    const std::string error = error_of([&] {
      timm(R"({"architecture":")" + architecture + R"(","model_args":)" + arguments +
           R"(,"pretrained_cfg":{}})");
    });
    return error.substr(std::min(error.size(), path("config.json").size() + 2));
  }
  Value preprocess(const std::string& json, const std::string& name = "preprocessor_config.json") const {
    PublishedFolder folder = with(name, json);
    return read_preprocess_config(folder, 0).value();
  }
};

TEST_F(HubConfigTest, TheLicenceIsThatOfTheConfigurationOrTheModelCard) {
  const auto license = [&](const std::string& name, const std::string& content) {
    PublishedFolder folder = with(name, content);
    return published_license(folder);
  };
  EXPECT_EQ(license("README.md", "no head"), "");
  EXPECT_EQ(license("README.md", "---\r\ntags: x\r\nlicense: cc-by-4.0\r\n---\r\nlicense: none\r\n"),
            "cc-by-4.0");
  EXPECT_EQ(license("README.md", "---\ntags: x\n---\nlicense: none\n"), "");
  EXPECT_EQ(license("config.json", R"({"pretrained_cfg": {"license": "apache-2.0"}})"), "apache-2.0");
}

TEST_F(HubConfigTest, TheArgumentsOfTheConstructorAreSettings) {
  const HubConfig hub = timm(R"({"architecture": "vit_tiny_patch16_224", "num_classes": 10,
      "model_args": {"img_size": [160, 160], "act_layer": "quick_gelu", "fc_norm": false, "global_pool": "avg",
                     "init_values": null, "reg_tokens": 4, "drop_rate": 0.5, "num_classes": 10},
      "pretrained_cfg": {"fixed_input_size": true, "crop_pct": 0.9, "interpolation": "bilinear", "crop_mode":
      "squash", "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25], "url": "x"}})");
  EXPECT_EQ(hub.model, "vit_tiny_patch16_224");
  const auto setting = [&](const char* key) { return *hub.settings.find(key); };
  EXPECT_EQ(setting("image_size"), Value(160));
  EXPECT_EQ(setting("mlp"), Value("quick_gelu"));
  EXPECT_EQ(setting("fc_norm"), Value("off"));
  EXPECT_EQ(setting("global_pool"), Value("avg"));
  EXPECT_EQ(setting("init_values"), Value(0.0));
  EXPECT_EQ(setting("reg_tokens"), Value(4));
  EXPECT_EQ(*hub.preprocess.find("size"), Value(160));
  EXPECT_EQ(*hub.preprocess.find("crop"), Value(0.9));
  EXPECT_EQ(*hub.preprocess.find("crop_mode"), Value("squash"));
  EXPECT_EQ(*hub.preprocess.find("interpolation"), Value("bilinear"));
}

TEST_F(HubConfigTest, TheInputSizeIsTheConstructorsOnlyIfItIsFixed) {
  const std::string head = R"({"architecture": "vit_tiny_patch16_224", "model_args": {)",
                    weights = R"("pretrained_cfg": {"fixed_input_size": true, "input_size": [3, 256, 256]}})";
  const HubConfig fixed = timm(head + "}, " + weights);
  EXPECT_EQ(*fixed.settings.find("image_size"), Value(256));
  const HubConfig dynamic = timm(head + R"("dynamic_img_size": true}, )" + weights);
  EXPECT_EQ(dynamic.settings.find("image_size"), nullptr);
  EXPECT_EQ(*dynamic.preprocess.find("size"), Value(256));
  // 384 pixels make 27 patches of 14.
  const HubConfig cut =
      timm(R"({"architecture": "vit_so400m_patch14_siglip_224", "model_args": {"img_size": [384, 384]}, )" +
           weights);
  EXPECT_EQ(*cut.settings.find("image_size"), Value(378));
  EXPECT_EQ(*cut.settings.find("drop_border"), Value(true));
  EXPECT_EQ(*cut.preprocess.find("size"), Value(384));
  const HubConfig convnet = timm(R"({"architecture": "resnet50", "pretrained_cfg": {"tag": "a3_in1k",
      "input_size": [3, 160, 160], "test_input_size": [3, 224, 224], "crop_pct": 0.95}})");
  EXPECT_EQ(convnet.model, "resnet50.a3_in1k");
  EXPECT_EQ(*convnet.preprocess.find("size"), Value(160));
  EXPECT_EQ(convnet.test_size, "--size 224 --crop 0.95");
}

TEST_F(HubConfigTest, AnArgumentWithoutAnEquivalentIsRefusedByName) {
  EXPECT_EQ(refusal(R"({"act_layer": "mish"})"),
            "model_args.act_layer is mish, which family vit cannot compute");
  EXPECT_EQ(refusal(R"({"global_pool": "max"})", "resnet18"),
            "model_args.global_pool is max, which family resnet cannot compute");
  EXPECT_EQ(refusal(R"({"output_stride": 16})", "resnet18"),
            "model_args.output_stride is 16, must be 32 in a ResNet of basic blocks");
  EXPECT_EQ(refusal(R"({"output_stride": 16})", "resnet50"), "");
  EXPECT_EQ(
      refusal(R"({"attn_layer": "diff"})"),
      "model_args.attn_layer is diff: family vit has no such setting, so that other numbers would come out");
  EXPECT_NE(refusal(R"({"img_size": [160, 224]})").find("must be a square"), std::string::npos);
}

TEST_F(HubConfigTest, ClassifiersOfTransformersAreSettings) {
  const auto of = [&](const std::string& name, const std::string& keys) {
    return timm(R"({"architectures": [")" + name + R"("], )" + keys + "}");
  };
  const HubConfig vit = of("ViTForImageClassification", R"("hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 2, "intermediate_size": 100, "image_size": 48, "patch_size": 8, "layer_norm_eps": 1e-5,
      "hidden_act": "gelu_new", "qkv_bias": false, "id2label": {"0": "cat", "1": "dog", "10": "lost"}, "dtype": "x")");
  const auto setting = [&](const char* key) { return *vit.settings.find(key); };
  EXPECT_EQ(vit.model, "vit");
  EXPECT_EQ(setting("mlp_ratio"), Value(100.5 / 64));
  EXPECT_EQ(setting("norm_eps"), Value(1e-5));
  EXPECT_EQ(setting("mlp"), Value("gelu_tanh"));
  EXPECT_EQ(setting("qkv_bias"), Value(false));
  EXPECT_EQ(*vit.preprocess.find("size"), Value(48));
  EXPECT_EQ(vit.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_FALSE(vit.multi_label);
  const HubConfig swin =
      of("SwinModel", R"("embed_dim": 8, "depths": [1, 2], "num_heads": [1, 2], "image_size": 56,
      "id2label": {"0": "LABEL_0"}, "problem_type": "multi_label_classification")");
  EXPECT_EQ(*swin.settings.find("dims"), Value(Value::Array{8, 16}));
  EXPECT_EQ(*swin.settings.find("form"), Value("timm"));
  EXPECT_EQ(*swin.settings.find("block_norm_eps"), Value(1e-5));
  const HubConfig other = of("SwinModel", R"("layer_norm_eps": 1e-6, "image_size": 224, "window_size": 7)");
  EXPECT_EQ(*other.settings.find("block_norm_eps"), Value(1e-6));
  EXPECT_EQ(*other.settings.find("last_norm_eps"), Value(1e-6));
  EXPECT_EQ(*of("ConvNextModel", R"("layer_norm_eps": 1e-12)").settings.find("last_norm_eps"), Value(1e-12));
  EXPECT_TRUE(swin.class_names.empty());
  EXPECT_TRUE(swin.multi_label);
  EXPECT_EQ(*of("BeitForImageClassification", R"("use_mean_pooling": false)").settings.find("global_pool"),
            Value("token"));
  const HubConfig pool = of("PoolFormerForImageClassification", R"("use_layer_scale": false)");
  EXPECT_EQ(*pool.settings.find("form"), Value("published"));
  EXPECT_EQ(*pool.settings.find("init_values"), Value(0.0));
  EXPECT_EQ(*of("ResNetForImageClassification", R"("downsample_in_bottleneck": true)")
                 .settings.find("stride_first"),
            Value(true));
}

TEST_F(HubConfigTest, DinoMaeAndClipsImageTowerAreSettingsOfViT) {
  const auto of = [&](const std::string& name, const std::string& keys = "") {
    return timm(R"({"architectures": [")" + name + R"("], "num_hidden_layers": 3, "hidden_size": 48,
        "num_attention_heads": 4)" +
                keys + "}");
  };
  const auto settings = [&](const HubConfig& hub, const std::vector<const char*>& keys) {
    Value::Array found;
    for (const char* key : keys) found.push_back(*hub.settings.find(key));
    return toml_text(Value(found));
  };
  const HubConfig dino = of("Dinov2Model", R"(, "image_size": 518)");
  EXPECT_EQ(
      settings(dino, {"patch_size", "image_size", "norm_eps", "init_values", "global_pool", "resample"}),
      R"([14, 518, 1e-06, 1.0, "token", "bicubic"])");
  EXPECT_EQ(
      settings(of("Dinov2WithRegistersModel"), {"patch_size", "reg_tokens", "reg_positions", "resample"}),
      R"([16, 4, false, "antialias"])");
  const HubConfig giant = of("Dinov2ForImageClassification", R"(, "use_swiglu_ffn": true)");
  EXPECT_EQ(settings(giant, {"global_pool", "mlp"}), R"(["token_avg", "swiglu_packed"])");
  EXPECT_EQ(giant.settings.find("mlp_ratio")->as_double(), 256.5 / 48);  // transformers: 2 x 128 rows
  EXPECT_EQ(
      settings(of("ViTMAEForPreTraining", R"(, "decoder_hidden_size": 32)"), {"patch_size", "norm_eps"}),
      "[16, 1e-12]");
  EXPECT_EQ(settings(of("CLIPVisionModel"), {"patch_size", "norm_eps", "mlp", "pre_norm"}),
            R"([32, 1e-05, "quick_gelu", true])");
  EXPECT_EQ(
      settings(of("SiglipVisionModel"), {"patch_size", "norm_eps", "mlp", "class_token", "global_pool"}),
      R"([16, 1e-06, "gelu_tanh", false, "map"])");
}

TEST_F(HubConfigTest, ClassifiersOfClipAndSiglipReadThePatchesOfTheirImageTower) {
  const auto of = [&](const std::string& name) {
    return timm(R"({"architectures": [")" + name + R"("], "id2label": {"0": "cat", "1": "dog"},
        "text_config": {"hidden_size": 32}, "projection_dim": 8,
        "vision_config": {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "patch_size": 8}})");
  };
  const HubConfig clip = of("CLIPForImageClassification"), siglip = of("SiglipForImageClassification");
  for (const HubConfig& one : {clip, siglip}) {
    EXPECT_EQ(one.class_names, (std::vector<std::string>{"cat", "dog"}));
    EXPECT_EQ(*one.settings.find("dim"), Value(48));
    EXPECT_EQ(*one.settings.find("global_pool"), Value("avg"));
  }
  EXPECT_EQ(*clip.settings.find("final_norm"), Value(false));
  EXPECT_EQ(*siglip.settings.find("fc_norm"), Value("off"));
  EXPECT_EQ(*siglip.settings.find("class_token"), Value(false));
  EXPECT_NE(error_of([&] {
              timm(R"({"architectures": ["CLIPForImageClassification"]})");
            }).find("vision_config is missing, must be an object"),
            std::string::npos);
  EXPECT_EQ(*timm(R"({"architectures": ["IJepaForImageClassification"]})").settings.find("class_token"),
            Value(false));
}

TEST_F(HubConfigTest, DinosPositionsFitTheSizeOfTheProcessor) {
  write_text_atomic(path("preprocessor_config.json"),
                    R"({"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 256}})");
  const HubConfig dino = timm(R"({"architectures": ["Dinov2Model"], "image_size": 518})");
  EXPECT_EQ(*dino.settings.find("image_size"), Value(518));
  EXPECT_EQ(*dino.preprocess.find("size"), Value(224));
  EXPECT_NE(error_of([&] {
              timm(R"({"architectures": ["ViTModel"], "image_size": 384})");
            }).find("image_size is 384, must be the 224 pixels of preprocessor_config.json"),
            std::string::npos);
}

TEST_F(HubConfigTest, WhatNoClassifierHereComputesIsRefusedByName) {
  const auto refused = [&](const std::string& name, const std::string& keys) {
    const std::string error =
        error_of([&] { timm(R"({"architectures": [")" + name + R"("], )" + keys + "}"); });
    return error.substr(std::min(error.size(), path("config.json").size() + 2));
  };
  EXPECT_EQ(refused("ResNetForImageClassification", R"("hidden_act": "gelu")"),
            "hidden_act is gelu, must be relu");
  EXPECT_EQ(refused("PoolFormerForImageClassification", R"("strides": [4, 2, 2, 1])"),
            "strides is [4, 2, 2, 1], must be [4, 2, 2, 2]");
  EXPECT_EQ(refused("ResNetForImageClassification", R"("downsample_in_first_stage": true)"),
            "downsample_in_first_stage is true, must be false");
  EXPECT_EQ(refused("ViTForImageClassification", R"("image_size": [32, 48])"),
            "image_size is [32, 48], must be the side of a square");
  EXPECT_EQ(refused("ViTForImageClassification", R"("problem_type": "regression")"),
            "problem_type is regression, must be single_label_classification or multi_label_classification");
  PublishedFolder folder = with("config.json", R"({"architectures": ["CvtForImageClassification"]})");
  EXPECT_FALSE(read_hub_config(folder).has_value());
  EXPECT_EQ(unread_class(folder), "CvtForImageClassification");
}

TEST_F(HubConfigTest, WhatNothingReadsIsNamed) {
  write_text_atomic(path("notes.bin"), "x");
  write_text_atomic(path("README.md"), "x");
  write_text_atomic(path("model.safetensors"), "x");
  PublishedFolder folder =
      with("config.json", R"({"architecture": "resnet18", "pretrained_cfg": {"new_key": 1}, "other": 2})");
  EXPECT_TRUE(read_hub_config(folder).has_value());
  const std::vector<std::string> lines = folder.lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0].ends_with("config.json: no use for pretrained_cfg.new_key, other")) << lines[0];
  EXPECT_TRUE(lines[1].ends_with(": not read: notes.bin")) << lines[1];
}

TEST_F(HubConfigTest, ImageProcessorsOfTransformersAreRead) {
  const Value clip =
      preprocess(R"({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 99},
      "crop_size": {"height": 16, "width": 16}, "do_center_crop": true, "resample": 2,
      "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})");
  EXPECT_EQ(*clip.find("size"), Value(16));
  EXPECT_EQ(std::floor(16 / clip.find("crop")->as_double()), 99);
  EXPECT_EQ(*clip.find("crop_mode"), Value("center_floor"));
  EXPECT_EQ(*clip.find("interpolation"), Value("bilinear"));
  // A number is the short side for CLIP, a square for others.
  EXPECT_EQ(
      *preprocess(R"({"feature_extractor_type": "ViTFeatureExtractor", "size": 224})").find("crop_mode"),
      Value("squash"));
  const Value old = preprocess(
      R"({"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224, "do_center_crop": true})");
  EXPECT_EQ(*old.find("crop_mode"), Value("center_floor"));
  EXPECT_EQ(old.find("mean")->as_array()[0], Value(0.48145466));
  // From 0 … 255 to -1 … 1 in one step.
  const Value scaled =
      preprocess(R"({"size": {"height": 8, "width": 8}, "rescale_factor": 0.00784313725490196,
      "image_mean": [1.0, 1.0, 1.0], "image_std": [1.0, 1.0, 1.0]})");
  EXPECT_DOUBLE_EQ(scaled.find("mean")->as_array()[0].as_double(), 0.5);
  EXPECT_DOUBLE_EQ(scaled.find("std")->as_array()[0].as_double(), 0.5);
  EXPECT_NE(error_of([&] { preprocess(R"({"size": {"height": 8, "width": 9}})"); }).find("must be a square"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              preprocess(R"({"size": {"shortest_edge": 8}, "do_resize": false})");
            }).find("do_resize is false"),
            std::string::npos);
}

// The values are those of transformers 5.
TEST_F(HubConfigTest, KeysThatAProcessorLeavesOutHaveTheDefaultsOfItsClass) {
  const auto of = [&](const char* type, const std::string& more = "") {
    const Value keys = preprocess(R"({"image_processor_type": ")" + std::string(type) + "\"" + more + "}");
    return toml_text(Value(Value::Array{*keys.find("size"), *keys.find("crop_mode"),
                                        *keys.find("interpolation"), keys.find("mean")->as_array()[0]}));
  };
  EXPECT_EQ(of("ViTImageProcessor"), R"([224, "squash", "bilinear", 0.5])");
  EXPECT_EQ(of("ViTImageProcessorFast", R"(, "size": [64, 64])"), R"([64, "squash", "bilinear", 0.5])");
  EXPECT_EQ(of("DeiTImageProcessor"), R"([224, "squash", "bicubic", 0.5])");
  EXPECT_EQ(of("BeitImageProcessor"), R"([224, "squash", "bicubic", 0.5])");
  EXPECT_EQ(of("SiglipImageProcessor"), R"([224, "squash", "bicubic", 0.5])");
  EXPECT_EQ(of("ConvNextImageProcessor"), R"([384, "squash", "bicubic", 0.5])");
  EXPECT_EQ(of("CLIPImageProcessor"), R"([224, "center_floor", "bicubic", 0.48145466])");
  EXPECT_EQ(of("BitImageProcessor", R"(, "do_center_crop": null)"),
            R"([224, "center_floor", "bicubic", 0.48145466])");
}

// Files from before 2022 name no class.
TEST_F(HubConfigTest, AProcessorWithoutAClassIsTheOneOfTheModel) {
  const auto of = [&](const char* model) {
    write_text_atomic(path("config.json"), R"({"model_type": ")" + std::string(model) + R"("})");
    return preprocess(
        R"({"do_normalize": true, "do_resize": true, "size": 64, "image_mean": [0.5, 0.5, 0.5]})");
  };
  EXPECT_EQ(*of("vit").find("interpolation"), Value("bilinear"));
  EXPECT_EQ(*of("vit").find("crop_mode"), Value("squash"));
  EXPECT_EQ(*of("resnet").find("interpolation"), Value("bicubic"));
  EXPECT_EQ(*of("resnet").find("crop_mode"), Value("center_floor"));
  EXPECT_EQ(std::floor(64 / of("resnet").find("crop")->as_double()), 73);
}

TEST_F(HubConfigTest, AConfigurationWithoutAClassIsTheClassifierOfItsModelType) {
  EXPECT_EQ(timm(R"({"model_type": "convnextv2", "num_channels": 3})").model, "convnext");
  EXPECT_EQ(*timm(R"({"model_type": "vit", "hidden_size": 64})").settings.find("dim"), Value(64));
  PublishedFolder other = with("config.json", R"({"model_type": "bert"})");
  EXPECT_FALSE(read_hub_config(other).has_value());
}

TEST_F(HubConfigTest, NamesOfClassesInEveryFormOfTimm) {
  const auto names = [&](const std::string& root) {
    return timm(R"({"architecture": "resnet18", )" + root + R"("pretrained_cfg": {"crop_pct": 0.9}})")
        .class_names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(R"("label_names": ["cat", "dog"], )"), (Names{"cat", "dog"}));
  EXPECT_EQ(names(R"("labels": ["cat", "dog"], )"), (Names{"cat", "dog"}));  // before timm 0.8
  EXPECT_EQ(names(R"("label_names": {"10": "z", "0": "cat", "2": "dog"}, )"),
            (Names{"cat", "1", "dog", "3", "4", "5", "6", "7", "8", "9", "z"}));
  EXPECT_NE(error_of([&] { names(R"("label_names": {"cat": "0"}, )"); }).find("label_names has 'cat'"),
            std::string::npos);
}

TEST_F(HubConfigTest, EvaAndPoolFormerAsTimmWritesThem) {
  const HubConfig eva = timm(R"({"architecture": "eva02_tiny_patch14_224", "model_args": {"num_classes": 10,
      "in_chans": 3, "global_pool": "avg", "img_size": [336, 336], "ref_feat_shape": [16, 16], "swiglu_mlp": true},
      "pretrained_cfg": {"fixed_input_size": true, "input_size": [3, 336, 336]}})");
  EXPECT_EQ(*eva.settings.find("image_size"), Value(336));
  EXPECT_EQ(*eva.settings.find("reference_grid"), Value(16));
  EXPECT_EQ(*eva.settings.find("mlp"), Value("swiglu"));
  const HubConfig pool =
      timm(R"({"architecture": "poolformer_s12", "model_args": {"num_classes": 10, "in_chans": 3,
      "global_pool": "avg"}, "pretrained_cfg": {"crop_pct": 0.95}})");
  EXPECT_EQ(*pool.preprocess.find("crop"), Value(0.95));
  EXPECT_EQ(refusal(R"({"global_pool": "max"})", "poolformer_s12"),
            "model_args.global_pool is max, which family poolformer cannot compute");
}

TEST_F(HubConfigTest, PreprocessCfgOfOpenClipHasPriority) {
  write_text_atomic(path("preprocessor_config.json"), R"({"size": {"height": 8, "width": 8}})");
  const Value own = preprocess(R"({"preprocess_cfg": {"size": 32, "mean": [0, 0, 0], "std": [1, 1, 1],
      "interpolation": "bilinear", "resize_mode": "squash"}})",
                               "open_clip_config.json");
  EXPECT_EQ(*own.find("size"), Value(32));
  EXPECT_EQ(*own.find("crop_mode"), Value("squash"));
  EXPECT_EQ(own.find("std")->as_array()[0], Value(1.0));
  const auto of = [&](const std::string& keys) {
    return preprocess(R"({"preprocess_cfg": {)" + keys + "}}", "open_clip_config.json");
  };
  EXPECT_EQ(*of(R"("resize_mode": "longest", "fill_color": [0, 0, 0])").find("crop_mode"), Value("longest"));
  EXPECT_NE(error_of([&] {
              of(R"("resize_mode": "longest", "fill_color": 127)");
            }).find("preprocess_cfg.fill_color is 127, must be 0"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              of(R"("resize_mode": "stretch")");
            }).find("preprocess_cfg.resize_mode is stretch, must be shortest, longest or squash"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::train
