#include <gtest/gtest.h>

#include <algorithm>

#include "core/core_testing.h"
#include "core/error.h"
#include "models/backbones/vil/backbone.h"
#include "models/base/encoder.h"
#include "models/heads/class_head.h"
#include "nn/position.h"
#include "nn/relative_position.h"

namespace tessera::models::models_test {
namespace {

using torch::Tensor;

Value settings(Value::Table entries) { return Value(std::move(entries)); }

ModelSpec small_vit(Value extra = {}) {
  Value all = settings(
      {{"dim", 16}, {"heads", 2}, {"depth", 2}, {"patch_size", 4}, {"image_size", 16}, {"classes", 3}});
  merge(all, extra);
  return resolve_model("vit", all);
}
ModelSpec small_vil(Value extra = {}) {
  Value all = settings({{"dim", 16}, {"depth", 2}, {"patch_size", 4}, {"image_size", 16}, {"classes", 3}});
  merge(all, extra);
  return resolve_model("vil", all);
}

TEST(Registry, NamesAliasesAndFamilies) {
  EXPECT_EQ(resolve_model("vil_tiny_patch16_224").settings, resolve_model("vil2-tiny").settings);
  EXPECT_EQ(resolve_model("vil").family, "vil");
  EXPECT_EQ(resolve_model("vit_base_patch32_224").settings.find("patch_size")->as_int(), 32);
  std::set<std::string> names;
  for (const Family& family : families())
    for (const Size& size : family.sizes) {
      EXPECT_TRUE(names.insert(size.name).second) << size.name;
      for (const std::string& alias : size.aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
    }
}

TEST(Registry, ErrorsNameTheNearest) {
  EXPECT_NE(usage_error_of([] { resolve_model("vil_tiny_patch16_22"); }).find("vil_tiny_patch16_224"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] { find_family("vlt"); }).find("vit"), std::string::npos);
  EXPECT_NE(usage_error_of([] { small_vit(settings({{"headz", 2}})); }).find("'heads'"), std::string::npos);
  EXPECT_NE(usage_error_of([] {
              small_vit(settings({{"dim", "wide"}}));
            }).find("model.dim"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] {
              small_vit(settings({{"dim", 15}}));
            }).find("multiple of model.heads"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] {
              small_vit(settings({{"positions", "relative"}}));
            }).find("global_pool = \"avg\""),
            std::string::npos);
  EXPECT_NE(usage_error_of([] {
              small_vit(settings({{"image_size", 18}}));
            }).find("multiple"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] {
              small_vil(settings({{"pooling", "maximal"}}));
            }).find("bilateral_flatten"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] {
              small_vil(settings({{"drop_path", 1.0}}));
            }).find("at least 0 and below 1"),
            std::string::npos);
}

TEST(Vit, OptionsChangeTheTreeAsTimmDoes) {
  const auto has = [](const ModelSpec& spec, const char* name) {
    return build_classifier(spec, 0)->backbone->named_parameters().contains(name);
  };
  EXPECT_TRUE(has(small_vit(), "norm.weight"));
  const ModelSpec mean = small_vit(settings({{"global_pool", "avg"}}));
  EXPECT_TRUE(has(mean, "fc_norm.weight") && !has(mean, "norm.weight"));
  EXPECT_FALSE(has(small_vit(settings({{"positions", "sincos"}})), "pos_embed"));
  EXPECT_TRUE(build_classifier(small_vit(settings({{"positions", "sincos"}})), 0)
                  ->backbone->named_buffers()
                  .contains("pos_embed"));
  const auto deit3 = meta_classifier(resolve_model("deit3_small_patch16_224"));
  EXPECT_EQ(deit3->backbone->named_parameters()["pos_embed"].size(1), 196);
  EXPECT_NEAR(build_classifier(small_vit(settings({{"init_values", 0.25}})), 0)
                  ->backbone->named_parameters()["blocks.0.ls1.gamma"]
                  .mean()
                  .item<double>(),
              0.25, 1e-7);
}

// If all positions are biases of the scores, the attention of a patch depends only on offsets.
TEST(Vit, BiasesArePositions) {
  const torch::NoGradGuard no_grad;
  for (const char* kind : {"relative", "alibi"}) {
    const auto model =
        build_classifier(small_vit(settings({{"positions", kind}, {"global_pool", "avg"}})), 0);
    model->backbone->eval();
    for (auto& entry : model->backbone->named_parameters()) {
      if (entry.key().find("relative_positions") != std::string::npos) entry.value().normal_();
      if (entry.key().find("attn.qkv") != std::string::npos) entry.value().zero_();
    }
    Taps taps;
    model->forward(torch::randn({1, 3, 16, 24}), Context{.taps = &taps});  // 4 x 6 patches, built for 4 x 4
    const Tensor scores = taps.kept.at("blocks.1.attention").log()[0];     // [heads, 25, 25]
    const Tensor patches = scores.slice(1, 1).slice(2, 1).reshape({2, 4, 6, 4, 6});
    const auto bias = [&](int64_t row, int64_t column, int64_t down, int64_t right) {
      const Tensor query = patches.select(1, row).select(1, column);
      return query.select(1, row + down).select(1, column + right) - query.select(1, row).select(1, column);
    };
    EXPECT_TRUE(torch::allclose(bias(0, 0, 2, 3), bias(1, 2, 2, 3), 1e-4, 1e-5)) << kind;
    EXPECT_TRUE(torch::allclose(bias(3, 5, -1, -2), bias(1, 2, -1, -2), 1e-4, 1e-5)) << kind;
    EXPECT_FALSE(torch::allclose(bias(0, 0, 2, 3), bias(0, 0, 3, 3), 1e-3, 1e-3)) << kind;
    EXPECT_TRUE(torch::allclose(scores.select(1, 0), scores[0][0][0].expand({2, 25}), 1e-4, 1e-5)) << kind;
  }
}

TEST(Vit, RelativePositionsLearnUnderCheckpointingToo) {
  const auto gradients = [](bool checkpointing) {
    const auto model =
        build_classifier(small_vit(settings({{"positions", "relative"}, {"global_pool", "avg"}})), 0);
    model->backbone->train();
    model->backbone->set_checkpointing(checkpointing);
    torch::manual_seed(2);
    model->forward(torch::randn({2, 3, 16, 16})).square().sum().backward();
    std::vector<Tensor> found;
    for (const auto& entry : model->backbone->named_parameters())
      if (entry.key().find("relative_positions") != std::string::npos) found.push_back(entry.value().grad());
    return found;
  };
  const std::vector<Tensor> plain = gradients(false), recomputed = gradients(true);
  ASSERT_EQ(plain.size(), 4u);  // rows and columns of two blocks
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_TRUE(plain[i].defined() && recomputed[i].defined()) << i;
    EXPECT_GT(plain[i].abs().max().item<double>(), 0) << i;
    EXPECT_TRUE(torch::allclose(plain[i], recomputed[i], 1e-4, 1e-7)) << i;
  }
}

// BEiT's tables of relative positions start at 0: the model then equals one without them.
TEST(Vit, RelativeTablesAreNeutralAtFirstAndThenCount) {
  const torch::NoGradGuard no_grad;
  for (const bool class_token : {true, false}) {
    const Value pool =
        settings({{"class_token", class_token}, {"global_pool", class_token ? "token" : "avg"}});
    Value with = settings({{"relative_table", true}});
    merge(with, pool);
    const auto plain = build_classifier(small_vit(pool), 4), tabled = build_classifier(small_vit(with), 4);
    plain->backbone->eval();
    tabled->backbone->eval();
    const Tensor x = torch::randn({2, 3, 16, 16}), wide = torch::randn({1, 3, 16, 24});
    auto parameters = tabled->backbone->named_parameters();
    for (auto& entry : plain->backbone->named_parameters())  // so that attention matters
      if (entry.key().find("attn.") != std::string::npos)
        parameters[entry.key()].copy_(entry.value().normal_(0, 0.2));
    EXPECT_TRUE(torch::allclose(plain->backbone->embed(x), tabled->backbone->embed(x), 1e-4, 1e-5));
    Tensor table = parameters["blocks.1.attn.relative_position_bias_table"];
    EXPECT_EQ(table.sizes(), (std::vector<int64_t>{7 * 7 + (class_token ? 3 : 0), 2}));
    table.normal_();
    EXPECT_FALSE(torch::allclose(plain->backbone->embed(x), tabled->backbone->embed(x), 1e-3, 1e-3));
    EXPECT_TRUE(tabled->forward(wide).isfinite().all().item<bool>());  // 4 x 6 patches
  }
}

// The table's rows for a class token appear in that token's attention.
TEST(Vit, RelativeTablesBiasTheScores) {
  const torch::NoGradGuard no_grad;
  const auto model = build_classifier(small_vit(settings({{"relative_table", true}})), 4);
  model->backbone->eval();
  auto parameters = model->backbone->named_parameters();
  parameters["blocks.0.attn.qkv.weight"].zero_();
  Tensor table = parameters["blocks.0.attn.relative_position_bias_table"];
  table.normal_();
  Taps taps;
  model->forward(torch::randn({1, 3, 16, 16}), Context{.taps = &taps});
  const Tensor bias = nn::offset_bias(table, 4, 4, true);
  EXPECT_TRUE(torch::allclose(taps.kept.at("blocks.0.attention"), bias.softmax(-1), 1e-5, 1e-6));
}

TEST(Vit, RelativeTablesFitAnotherGrid) {
  const auto model = build_classifier(small_vit(settings({{"relative_table", true}})), 0);  // 4 x 4 patches
  const std::string name = "blocks.1.attn.relative_position_bias_table";
  const Tensor stored = torch::randn({11 * 11 + 3, 2});  // for 6 x 6
  const Tensor fitted = model->backbone->fit(name, stored);
  EXPECT_EQ(fitted.sizes(), (std::vector<int64_t>{7 * 7 + 3, 2}));
  EXPECT_TRUE(torch::equal(fitted.slice(0, 49), stored.slice(0, 121)));
  EXPECT_FALSE(model->backbone->fit(name, torch::randn({10 * 10 + 3, 2})).defined());  // fits no grid
  EXPECT_FALSE(model->backbone->fit(name, torch::randn({11 * 11 + 3, 4})).defined());  // other heads
  const auto decayed_not = model->backbone->no_weight_decay();
  EXPECT_NE(std::find(decayed_not.begin(), decayed_not.end(), name), decayed_not.end());
  EXPECT_NE(usage_error_of([] {
              small_vit(settings({{"relative_table", true}, {"reg_tokens", 2}}));
            }).find("reg_tokens = 0"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] {
              small_vit(settings({{"relative_table", true}, {"positions", "alibi"}}));
            }).find("one of them"),
            std::string::npos);
}

// With only conditional positions, a ViT distinguishes an image from the same patches in other places.
TEST(Vit, ConditionalPositionsTellPlacesApart) {
  const torch::NoGradGuard no_grad;
  const Tensor x = torch::randn({1, 3, 16, 16}), rolled = torch::cat({x.slice(2, 8), x.slice(2, 0, 8)}, 2);
  for (const bool peg : {false, true})
    for (const bool class_token : {false, true}) {
      const auto model = build_classifier(
          small_vit(settings(
              {{"positions", "none"}, {"peg", peg}, {"class_token", class_token}, {"global_pool", "avg"}})),
          0);
      model->backbone->eval();
      EXPECT_EQ(torch::allclose(model->backbone->embed(x), model->backbone->embed(rolled), 1e-4, 1e-5), !peg);
      EXPECT_EQ(dynamic_cast<TokenEncoder&>(*model->backbone).keep_refusal().empty(), !peg);
    }
}

TEST(Vit, FitsPositionsOfAnotherGrid) {
  const auto model = build_classifier(small_vit(), 0);  // 4 x 4 patches and a class token
  const Tensor stored = torch::randn({1, 1 + 36, 16});
  const Tensor fitted = model->backbone->fit("pos_embed", stored);
  EXPECT_EQ(fitted.sizes(), (std::vector<int64_t>{1, 17, 16}));
  EXPECT_TRUE(torch::equal(fitted.select(1, 0), stored.select(1, 0)));
  EXPECT_FALSE(model->backbone->fit("pos_embed", torch::randn({1, 1 + 35, 16})).defined());  // no square
  EXPECT_FALSE(model->backbone->fit("pos_embed", torch::randn({1, 1 + 36, 8})).defined());   // another width
  EXPECT_FALSE(model->backbone->fit("head.weight", stored).defined());
}

TEST(Vil, FitsPositions) {
  const auto model = build_classifier(small_vil(), 0);
  EXPECT_EQ(model->backbone->fit("pos_embed.embed", torch::randn({1, 6, 5, 16})).sizes(),
            (std::vector<int64_t>{1, 4, 4, 16}));
  EXPECT_FALSE(model->backbone->fit("pos_embed.embed", torch::randn({1, 6, 5, 8})).defined());
}

TEST(Vil, TheConvolutionsGridFollowsTheImageUnlessToldOtherwise) {
  const Tensor wide = torch::randn({1, 3, 8, 32});  // 2 x 8 tokens, built for 4 x 4
  const auto input = build_classifier(small_vil(), 1),
             built = build_classifier(small_vil(settings({{"conv_grid", "built"}})), 1);
  input->backbone->eval();
  built->backbone->eval();
  EXPECT_FALSE(torch::allclose(input->forward(wide), built->forward(wide), 1e-3, 1e-7));
  const Tensor square = torch::randn({1, 3, 16, 16});
  EXPECT_TRUE(torch::equal(input->forward(square), built->forward(square)));
  EXPECT_ANY_THROW(built->forward(torch::randn({1, 3, 20, 12})));  // 15 tokens do not fill 4 rows
}

TEST(Vil, FeaturesModeGivesTokensOrAMap) {
  const Tensor x = torch::randn({2, 3, 16, 24});
  const auto tokens = build_classifier(small_vil(settings({{"mode", "features"}, {"pooling", "none"}})), 1);
  const auto map = build_classifier(small_vil(settings({{"mode", "features"}, {"pooling", "to_image"}})), 1);
  const auto features = [&](const Classifier& model) {
    return dynamic_cast<VilBackbone&>(*model.backbone).published_features(x);
  };
  const Tensor rows = features(*tokens), image = features(*map);
  EXPECT_EQ(rows.sizes(), (std::vector<int64_t>{2, 24, 16}));
  EXPECT_TRUE(torch::equal(image, rows.transpose(1, 2).reshape({2, 16, 4, 6})));
  EXPECT_FALSE(tokens->backbone->named_parameters().contains("head.weight"));
  EXPECT_TRUE(torch::equal(tokens->forward(x), tokens->backbone->embed(x)));
  EXPECT_ANY_THROW(features(*build_classifier(small_vil(), 1)));
}

// The numbers that the papers print, in units of 10^9.
TEST(Macs, AreThoseOfThePapers) {
  const auto billions = [](const char* name, int64_t side, Value overrides = {}) {
    return static_cast<double>(meta_classifier(resolve_model(name, overrides))->macs(side, side)) * 1e-9;
  };
  EXPECT_NEAR(billions("vil_tiny_patch16_224", 224), 1.3, 0.05);
  EXPECT_NEAR(billions("vil_small_patch16_224", 224), 4.7, 0.05);
  EXPECT_NEAR(billions("vil_base_patch16_224", 224), 17.9, 0.05);
  const Value headless = settings({{"classes", 0}});
  EXPECT_NEAR(billions("vil_tiny_patch16_224", 512, headless), 6.6, 0.05);
  EXPECT_NEAR(billions("vil_small_patch16_224", 512, headless), 24.4, 0.05);
  EXPECT_NEAR(billions("vil_base_patch16_224", 512, headless), 93.6, 0.05);
  EXPECT_NEAR(billions("deit_tiny_patch16_224", 224), 1.3, 0.05);
  EXPECT_NEAR(billions("deit_small_patch16_224", 224), 4.6, 0.05);
  EXPECT_NEAR(billions("deit_base_patch16_384", 384), 55.5, 0.05);
  EXPECT_NEAR(billions("deit3_small_patch16_224", 224), 4.6, 0.05);
  EXPECT_NEAR(billions("deit3_base_patch16_224", 224), 17.6, 0.05);
  EXPECT_NEAR(billions("swin_tiny_patch4_window7_224", 224), 4.5, 0.05);
  EXPECT_NEAR(billions("swin_small_patch4_window7_224", 224), 8.7, 0.05);
  EXPECT_NEAR(billions("swin_base_patch4_window7_224", 224), 15.4, 0.05);
  EXPECT_NEAR(billions("swin_base_patch4_window12_384", 384), 47.0, 0.1);  // 47.08: the paper truncates
  EXPECT_NEAR(billions("swin_large_patch4_window7_224", 224), 34.5, 0.05);
}

TEST(Taps, KeepWhatIsWanted) {
  for (const ModelSpec& spec : {small_vit(), small_vil()}) {
    const auto model = build_classifier(spec, 1);
    model->backbone->eval();
    const Tensor x = torch::randn({1, 3, 16, 16});
    Taps taps{.wanted = [](const std::string& name) { return name == "blocks.1" || name == "embed"; },
              .kept = {}};
    const Tensor y = model->forward(x, Context{.taps = &taps});
    EXPECT_EQ(taps.kept.size(), 2u);
    EXPECT_TRUE(torch::equal(taps.kept.at("embed"), model->backbone->embed(x)));
    EXPECT_TRUE(torch::equal(model->forward(x), y));
  }
}

}  // namespace
}  // namespace tessera::models::models_test
