// Files published by other programs: their names, preprocessing and class names.
#include <gtest/gtest.h>

#include <cmath>

#include "core/config.h"
#include "data/base/class_names.h"
#include "io/files/io_testing.h"
#include "models/heads/class_head.h"
#include "open/load.h"
#include "open/open_task.h"
#include "open/weights.h"
#include "recipe/recipe.h"
#include "weights/hub_config.h"
#include "weights/name_tables.h"

namespace tessera::train {
namespace {

class PublishedTest : public TemporaryFolder {
 protected:
  // Tensors of one of timm's sizes, as saved by another program: no metadata.
  static NamedTensors tensors_of(const std::string& name, int64_t classes = 1000) {
    Value settings;
    settings.set("classes", classes);
    const auto model = models::build_classifier(models::resolve_model(name, settings), 3, models::Init::skip);
    NamedTensors out;
    for (const auto& item : model->backbone->named_parameters())
      out.emplace_back(item.key(), torch::full(item.value().sizes(), 0.01));
    return out;
  }
  std::string saved(const std::string& name, const NamedTensors& tensors) const {
    make_directories(std::filesystem::path(path(name)).parent_path().string());
    save_tensors(path(name), tensors);
    return path(name);
  }
  static NamedTensors renamed(NamedTensors tensors,
                              const std::function<std::string(const std::string&)>& rename) {
    for (auto& [name, tensor] : tensors) name = rename(name);
    return tensors;
  }
};

data::Preprocess published(const std::string& name) {
  return read_config<data::Preprocess>(models::published_preprocess(models::resolve_model(name)),
                                       "preprocess");
}

const std::vector<double> kHalf = {0.5, 0.5, 0.5};

// timm's configurations, by name and tag.
TEST(PublishedNames, HaveTimmsTestCrops) {
  for (const char* name : {"deit_tiny_patch16_224", "deit_base_distilled_patch16_224",
                           "deit3_base_patch16_224", "swin_tiny_patch4_window7_224",
                           "swin_large_patch4_window7_224", "twins_svt_base", "vit_base_patch8_224"})
    EXPECT_EQ(published(name).crop, 0.9) << name;
  for (const char* name :
       {"deit_base_patch16_384", "deit_base_distilled_patch16_384", "deit3_large_patch16_384",
        "swin_base_patch4_window12_384", "swin_large_patch4_window12_384", "vit_tiny_patch16_384"}) {
    EXPECT_EQ(published(name).crop, 1.0) << name;
    EXPECT_EQ(published(name).crop_mode, "center") << name;
    EXPECT_EQ(models::resolve_model(name).settings.find("image_size")->as_int(), 384) << name;
  }
  EXPECT_EQ(published("vit_base_patch16_384").mean, kHalf);
  EXPECT_EQ(published("deit_base_patch16_384").mean, data::Preprocess().mean);
}

TEST(PublishedNames, MayHaveATag) {
  EXPECT_EQ(published("vit_base_patch16_224.augreg_in21k").mean, kHalf);
  EXPECT_EQ(published("vit_base_patch16_224.dino").mean, data::Preprocess().mean);
  EXPECT_EQ(published("vit_base_patch16_224.dino").crop, 0.9);
  EXPECT_EQ(published("deit3_base_patch16_224.fb_in1k").crop, 0.9);
  EXPECT_EQ(published("deit3_base_patch16_224.fb_in22k_ft_in1k").crop, 1.0);
  EXPECT_EQ(models::resolve_model("swin_tiny_patch4_window7_224.ms_in1k").settings,
            models::resolve_model("swin_tiny_patch4_window7_224").settings);
  // torchvision resizes the short side to 232 for its second weights, timm's third ones have 160 pixels.
  EXPECT_EQ(published("resnet50.tv2_in1k").interpolation, "bilinear");
  EXPECT_EQ(std::floor(224 / published("resnet50.tv2_in1k").crop), 232);
  EXPECT_EQ(published("resnet50.tv_in1k").crop, 0.875);
  EXPECT_EQ(published("resnet50.a3_in1k").size, 160);
  EXPECT_EQ(published("convnext_tiny.fb_in22k_ft_in1k_384").size, 384);
  EXPECT_EQ(published("convnext_tiny.fb_in22k_ft_in1k_384").crop_mode, "squash");
  EXPECT_EQ(published("vit_base_patch16_224.torchvision").mean, data::Preprocess().mean);
  EXPECT_EQ(published("resnet50_clip.openai").crop, 1.0);
  EXPECT_EQ(error_of([] { models::resolve_model("twins_svt_small.in22k"); }),
            "'twins_svt_small' has no weights 'in22k', must be one of in1k");
  EXPECT_EQ(error_of([] { models::resolve_model("vil2-tiny.in1k"); }),
            "'vil2-tiny' has no weights 'in1k': its weights have no tags");
}

// The side of the images: the tag's, or the model's.
int64_t side_of(const std::string& name) {
  const models::ModelSpec spec = models::resolve_model(name);
  const Value keys = models::published_preprocess(spec);
  const Value* const own = keys.find("size");
  return (own ? own : spec.settings.find("image_size"))->as_int();
}

TEST(PublishedNames, OfLaterSizesHaveTimmsCrops) {
  const auto is = [](const char* name, int64_t size, double crop, const char* mode, double mean) {
    const data::Preprocess found = published(name);
    EXPECT_EQ(side_of(name), size) << name;
    EXPECT_EQ(found.crop, crop) << name;
    EXPECT_EQ(found.crop_mode, mode) << name;
    EXPECT_NEAR(found.mean[0], mean, 1e-6) << name;
  };
  is("vit_base_patch32_clip_224.laion2b", 224, 0.9, "center", 0.48145466);
  is("vit_large_patch14_clip_224.laion2b_ft_in1k", 224, 1, "center", 0.5);
  is("vit_large_patch14_clip_224.openai", 224, 1, "center", 0.48145466);
  is("vit_base_patch16_clip_384.openai_ft_in12k_in1k", 384, 0.95, "squash", 0.48145466);
  is("vit_huge_patch14_clip_378.metaclip2_worldwide", 378, 1, "squash", 0.48145466);
  is("vit_so400m_patch14_siglip_384.webli", 384, 0.9, "center", 0.5);
  is("vit_so400m_patch14_siglip_378.webli_ft_in1k", 378, 1, "squash", 0.5);
  is("vit_mediumd_patch16_reg4_gap_384.sbb2_e200_in12k_ft_in1k", 384, 1, "center", 0.5);
  is("vit_so150m2_patch16_reg1_gap_448.sbb_e200_in12k_ft_in1k", 448, 1, "squash", 0.5);
  is("vit_small_patch8_224.dino", 224, 0.9, "center", 0.485);
  is("convnext_nano.r384_in12k_ft_in1k", 384, 1, "center", 0.485);
  is("convnextv2_huge.fcmae_ft_in22k_in1k_512", 512, 1, "squash", 0.485);
}

TEST(WrappedNames, ArePrefixesInFrontOfThePatchEmbedding) {
  const auto unwrapped = [](const std::vector<std::string>& names) { return unwrap_names(names).names; };
  using Names = std::vector<std::string>;
  EXPECT_EQ(unwrapped({"patch_embed.proj.weight", "backbone.x"}),
            (Names{"patch_embed.proj.weight", "backbone.x"}));
  // Lightning: one prefix for all, and other content of the module.
  const UnwrappedNames lightning =
      unwrap_names({"model.patch_embed.proj.weight", "model.head.bias", "loss.weight"});
  EXPECT_EQ(lightning.names, (Names{"patch_embed.proj.weight", "head.bias", ""}));
  EXPECT_EQ(lightning.beside, Names{"loss.weight"});
  // MMPretrain: the head next to the backbone; and both inside a wrapper.
  EXPECT_EQ(unwrapped({"backbone.patch_embed.projection.weight", "head.layers.head.bias"}),
            (Names{"patch_embed.projection.weight", "head.layers.head.bias"}));
  EXPECT_EQ(unwrapped({"module.backbone.patch_embeds.0.proj.weight", "module.head.fc.bias"}),
            (Names{"patch_embeds.0.proj.weight", "head.fc.bias"}));
  // torchvision's own names begin with a word that is a wrapper elsewhere.
  for (const std::string first : {"stem.conv", "stem1.0", "dinov2.embeddings.patch_embeddings.projection"}) {
    const UnwrappedNames averaged =
        unwrap_names({"module." + first + ".weight", "module.x.bias", "n_averaged"});
    EXPECT_EQ(averaged.names, (Names{first + ".weight", "x.bias", ""}));
    EXPECT_EQ(averaged.beside, Names{"n_averaged"});
  }
  EXPECT_EQ(unwrapped({"conv_proj.weight", "encoder.ln.weight"}),
            (Names{"conv_proj.weight", "encoder.ln.weight"}));
  // mmseg's heads are outside the backbone; the names within it are the business of the tables.
  EXPECT_EQ(unwrapped({"backbone.patch_embed.projection.weight", "decode_head.conv_seg.bias",
                       "backbone.fpn1.3.bias", "auxiliary_head.convs.0.bn.num_batches_tracked"}),
            (Names{"patch_embed.projection.weight", "decode_head.conv_seg.bias", "fpn1.3.bias",
                   "auxiliary_head.convs.0.bn.num_batches_tracked"}));
  // A ResNet has no patch embedding; mmdet's heads are outside it, torchvision's body has another name.
  EXPECT_EQ(unwrapped({"backbone.conv1.weight", "backbone.layer1.0.conv1.weight", "rpn_head.rpn_cls.weight"}),
            (Names{"conv1.weight", "layer1.0.conv1.weight", "rpn_head.rpn_cls.weight"}));
  EXPECT_EQ(unwrapped({"backbone.body.layer1.0.conv1.weight"}), Names{"backbone.body.layer1.0.conv1.weight"});
  // Every family, nested wrappers, and those inside a name.
  EXPECT_EQ(unwrapped({"model.stem.0.weight", "model.head.fc.bias"}),
            (Names{"stem.0.weight", "head.fc.bias"}));
  EXPECT_EQ(unwrapped({"model._orig_mod.module.stem.0.weight"}), Names{"stem.0.weight"});
  EXPECT_EQ(unwrapped({"module.features.0.0.weight"}), Names{"features.0.0.weight"});
  EXPECT_EQ(unwrapped({"module.visual.conv1.weight", "module.logit_scale"}),
            (Names{"visual.conv1.weight", "logit_scale"}));
  EXPECT_EQ(unwrapped({"patch_embed.proj.weight", "blocks.0._checkpoint_wrapped_module.norm1.weight"}),
            (Names{"patch_embed.proj.weight", "blocks.0.norm1.weight"}));
  // Any word, if all tensors have it.
  EXPECT_EQ(unwrapped({"learner.vit.cls_token", "learner.vit.patch_embed.proj.weight",
                       "learner.vit.norm.bias", "learner.vit.head.bias"}),
            (Names{"cls_token", "patch_embed.proj.weight", "norm.bias", "head.bias"}));
  EXPECT_EQ(unwrapped({"image_encoder.patch_embed.proj.weight", "image_encoder.pos_embed",
                       "image_encoder.norm.bias", "mask_decoder.bias"})[0],
            "image_encoder.patch_embed.proj.weight");
  // A moving average next to the model is not mistaken for it.
  EXPECT_EQ(unwrapped({"ema.patch_embed.proj.weight", "model.patch_embed.proj.weight"}),
            (Names{"", "patch_embed.proj.weight"}));
}

TEST_F(PublishedTest, TheTextTowerOfClipIsSaidToBeLeftOut) {
  const Value small = Value(Value::Table{{"classes", 0}});
  const auto model = models::meta_classifier(models::resolve_model("resnet50_clip", small));
  NamedTensors tensors;
  for (const auto& [name, tensor] : named_state(*model->backbone))
    tensors.emplace_back("visual." + name, torch::zeros(tensor.sizes()));
  tensors.emplace_back("visual.bn1.num_batches_tracked", torch::zeros({}, torch::kInt64));
  const auto notes = [&] {
    return open_task(saved("clip.safetensors", tensors), {.model = "resnet50_clip"}).notes;
  };
  for (const std::string& note : notes()) EXPECT_FALSE(note.starts_with("not of the model")) << note;
  tensors.emplace_back("transformer.resblocks.0.ln_1.weight", torch::ones({64}));
  tensors.emplace_back("logit_scale", torch::ones({}));
  EXPECT_EQ(notes().back(),
            "not of the model: 2 tensors (transformer.resblocks.0.ln_1.weight, logit_scale), which belong to "
            "another part of the file");
}

TEST_F(PublishedTest, WrappedModelsAreReadAsTheyAre) {
  const NamedTensors plain = tensors_of("deit_tiny_patch16_224", 7);
  const auto read = [&](const NamedTensors& tensors) {
    return open_task(saved("f.safetensors", tensors), {.model = "deit_tiny_patch16_224"});
  };
  for (const std::string prefix : {"model.", "module.", "backbone.", "encoder.", "model.backbone."}) {
    NamedTensors wrapped = renamed(plain, [&](const std::string& name) { return prefix + name; });
    EXPECT_EQ(read(wrapped).info.model.settings.find("classes")->as_int(), 7) << prefix;
    wrapped.emplace_back("loss.weight", torch::zeros({7}));
    const OpenedTask opened = read(wrapped);
    EXPECT_EQ(opened.notes.back(),
              "not of the model: 1 tensor (loss.weight), whose names do not begin with " + prefix);
  }
  // MMPretrain's names for the same layers.
  const NamedTensors theirs = renamed(plain, [](std::string name) {
    const auto replace = [&](const std::string& from, const std::string& to) {
      if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    };
    if (name.starts_with("head.")) return "head.layers." + name;
    for (const auto& [from, to] :
         std::vector<std::pair<std::string, std::string>>{{"blocks.", "layers."},
                                                          {"norm1", "ln1"},
                                                          {"norm2", "ln2"},
                                                          {"mlp.fc1", "ffn.layers.0.0"},
                                                          {"mlp.fc2", "ffn.layers.1"},
                                                          {"patch_embed.proj", "patch_embed.projection"}})
      replace(from, to);
    if (name.starts_with("norm.")) name = "ln1" + name.substr(4);
    return "backbone." + name;
  });
  EXPECT_EQ(read(theirs).info.model.settings.find("classes")->as_int(), 7);
}

TEST_F(PublishedTest, ADeit3FileOfItsAuthorsIsReadToo) {
  const NamedTensors theirs = renamed(tensors_of("deit3_small_patch16_224", 7), [](std::string name) {
    if (const size_t at = name.find("ls"); at != std::string::npos && name.ends_with(".gamma"))
      name = name.substr(0, at) + "gamma_" + name[at + 2];
    return name;
  });
  EXPECT_EQ(open_task(saved("f.safetensors", theirs)).info.model.name, "deit3_small_patch16_224");
}

TEST_F(PublishedTest, HeadsAsWideAsImageNetsHaveItsNames) {
  const auto names_in = [&](int64_t classes) {
    const WeightFile file(saved("f.safetensors", tensors_of("twins_svt_small", classes)));
    const WeightsInfo info = describe_weights(file);
    const Value* names = info.task_metadata.find("class_names");
    return names ? std::ssize(names->as_array()) : 0;
  };
  EXPECT_EQ(names_in(1000), 1000);
  EXPECT_EQ(names_in(21841), 21841);
  EXPECT_EQ(names_in(999), 0);
}

TEST_F(PublishedTest, ClassNamesOfOnesOwnMustBeAsManyAsTheClasses) {
  const std::string file = saved("f.safetensors", tensors_of("twins_svt_small", 3));
  const OpenedTask opened = open_task(file, {.class_names = {"a", "b", "c"}});
  const auto said = opened.task->predict(torch::zeros({1, 3, 224, 224}), 3);
  EXPECT_EQ(said.at(0).size(), 3u);
  EXPECT_EQ(said[0][0].values[0].second.as_string().size(), 1u);
  EXPECT_EQ(error_of([&] {
              open_task(file, {.class_names = {"a", "b"}});
            }),
            "2 class names for '" + file + "', which has 3 classes");
}

TEST_F(PublishedTest, WhatIsNoModelOfOursIsSaid) {
  const NamedTensors other = {{"stem.weight", torch::zeros({64, 3, 7, 7})},
                              {"norm0.weight", torch::zeros({64})},
                              {"group1.0.reduce.weight", torch::zeros({64, 64, 1, 1})},
                              {"fc.weight", torch::zeros({1000, 64})}};
  const std::string file = saved("other.safetensors", other);
  EXPECT_EQ(error_of([&] { open_task(file); }),
            "'" + file +
                "' holds no model of any family (`tessera models` lists them): its 4 tensors begin with "
                "stem.weight, norm0.weight, group1.0.reduce.weight");
}

TEST_F(PublishedTest, AHubsFolderSaysWhichModelItHolds) {
  saved("hub/model.safetensors", tensors_of("vit_tiny_patch16_224", 3));
  const auto config = [&](const std::string& json) { write_text_atomic(path("hub/config.json"), json); };
  config(R"({"architecture": "vit_tiny_patch16_224", "num_classes": 3, "label_names": ["x", "y", "z"],
             "pretrained_cfg": {"tag": "augreg_in21k", "crop_pct": 0.95, "mean": [0.1, 0.2, 0.3],
                                "std": [1, 1, 1], "interpolation": "bilinear", "pool_size": null}})");
  const OpenedTask opened = open_task(path("hub"));
  EXPECT_EQ(opened.info.model.name, "vit_tiny_patch16_224.augreg_in21k");
  EXPECT_EQ(opened.info.preprocess.crop, 0.95);
  EXPECT_EQ(opened.info.preprocess.mean, (std::vector<double>{0.1, 0.2, 0.3}));
  EXPECT_EQ(opened.info.preprocess.interpolation, "bilinear");
  EXPECT_EQ(opened.info.task_metadata.find("class_names")->as_array().size(), 3u);
  config(R"({"architecture": "efficientnet_b0"})");
  EXPECT_NE(error_of([&] { open_task(path("hub")); }).find("holds efficientnet_b0 (by the config.json"),
            std::string::npos);
  config("{");
  EXPECT_NE(error_of([&] { open_task(path("hub")); }).find("hub/config.json"), std::string::npos);
}

// With ImageNet's mean and a crop of 0.875, weights made with other preprocessing silently lose accuracy.
TEST_F(PublishedTest, FineTuningPreparesImagesAsTheWeightsSawThem) {
  const std::string foreign = saved("vit.safetensors", tensors_of("vit_tiny_patch16_224"));
  write_text_atomic(path("r.toml"), "[model]\nname = \"vit_tiny_patch16_224\"\n[train]\nepochs = 1\n");
  const auto load = [&](std::vector<std::string> settings) {
    return load_recipe(path("r.toml"), settings).preprocess;
  };
  EXPECT_EQ(load({}).crop, 0.875);
  const std::string pretrained = "model.pretrained=\"" + foreign + "\"";
  EXPECT_EQ(load({pretrained}).crop, 0.9);
  EXPECT_EQ(load({pretrained}).mean, kHalf);
  EXPECT_EQ(load({pretrained, "model.name=\"deit_tiny_patch16_224\""}).mean, data::Preprocess().mean);
  EXPECT_EQ(load({pretrained, "model.image_size=32"}).size, 32);
  // The user's settings win, key by key.
  const data::Preprocess mixed = load({pretrained, "preprocess.crop=0.7"});
  EXPECT_EQ(mixed.crop, 0.7);
  EXPECT_EQ(mixed.std, kHalf);
  // A folder means its weights; a file of Tessera records its preprocessing.
  saved("hub/model.safetensors", tensors_of("vit_tiny_patch16_224"));
  EXPECT_EQ(load({"model.pretrained=\"" + path("hub") + "\""}).mean, kHalf);
  WeightsInfo info;
  info.model = models::resolve_model("vit_tiny_patch16_224");
  info.preprocess.mean = {0.1, 0.1, 0.1};
  save_weights(path("own.safetensors"), tensors_of("vit_tiny_patch16_224"), info);
  EXPECT_EQ(load({"model.pretrained=\"" + path("own.safetensors") + "\""}).mean, info.preprocess.mean);
  EXPECT_EQ(load({"model.pretrained=\"none.safetensors\""}).crop, 0.875);
}

// A run that began earlier, or lost its weights file, continues with its own preprocessing.
TEST_F(PublishedTest, AStoredRunKeepsItsPreprocessing) {
  const std::string foreign = saved("vit.safetensors", tensors_of("vit_tiny_patch16_224"));
  write_text_atomic(path("r.toml"), "[model]\nname = \"vit_tiny_patch16_224\"\n[train]\nepochs = 1\n");
  const std::vector<std::string> settings = {"model.pretrained=\"" + foreign + "\"",
                                             "train.output=\"" + path("run") + "\""};
  make_directories(path("run"));
  write_text_atomic(path("run/recipe.toml"),
                    "[model]\npretrained = \"" + foreign + "\"\n[preprocess]\ncrop = 0.875\n");
  EXPECT_EQ(load_recipe(path("r.toml"), settings).preprocess.crop, 0.875);
  write_text_atomic(path("run/recipe.toml"), "[model]\npretrained = \"\"\n[preprocess]\ncrop = 0.875\n");
  EXPECT_EQ(load_recipe(path("r.toml"), settings).preprocess.crop, 0.9);
}

}  // namespace
}  // namespace tessera::train
