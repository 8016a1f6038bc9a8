// Sizes, costs and initial weights that the papers print, in addition to those in models_test and llama_test.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "models/base/capability.h"
#include "models/heads/class_head.h"

namespace tessera::models::papers_test {
namespace {

Value settings(Value::Table entries) { return Value(std::move(entries)); }

double million_parameters(const char* name) {
  return static_cast<double>(count_parameters(*meta_classifier(resolve_model(name))->backbone)) * 1e-6;
}

double billion_macs(const char* name, int64_t side) {
  const ModelSpec spec = resolve_model(name, settings({{"image_size", side}}));
  return static_cast<double>(meta_classifier(spec)->macs(side, side)) * 1e-9;
}

int64_t masked_out(const ModelSpec& spec, int64_t height, int64_t width) {
  return dynamic_cast<const MaskedAttention&>(*meta_backbone(spec)).masked_out_macs(height, width);
}

TEST(Sizes, AreThoseOfThePapers) {
  EXPECT_NEAR(billion_macs("vit_large_patch16_224", 384), 191.2, 0.15);      // iLLaMA, Table 6
  EXPECT_NEAR(billion_macs("vit_base_patch16_224", 384), 55.5, 0.05);        // iLLaMA, Table 6
  EXPECT_NEAR(billion_macs("illama_large_patch16_384", 384), 194.7, 0.1);    // iLLaMA, Table 6
  EXPECT_NEAR(million_parameters("cpvt_small_gap_patch16_224"), 22.0, 0.1);  // VisionLLaMA, Table 2: 23
  EXPECT_EQ(std::lround(million_parameters("visionllama_base_mae_patch16_224")), 256);
  EXPECT_EQ(std::lround(million_parameters("visionllama_large_mae_patch16_224")), 914);
}

// Vision-LSTM, section A.1: hidden widths 192, 384, 768, 1024; L has twice the blocks.
TEST(Sizes, VisionLstmLargeHasTwiceTheBlocks) {
  const auto settings_of = [](const char* name, const char* key) {
    return resolve_model(name).settings.find(key)->as_int();
  };
  EXPECT_EQ(settings_of("vil_large_patch16_224", "dim"), 1024);
  EXPECT_EQ(settings_of("vil_large_patch16_224", "depth"), 2 * settings_of("vil_base_patch16_224", "depth"));
  EXPECT_EQ(settings_of("vil_large_patch16_224", "depth"), 24);  // pairs
}

// iLLaMA, Table 2: 4 N D^2 + N^2 D + (floor(N^2 / 2) + 1) D instead of 4 N D^2 + 2 N^2 D.
TEST(MaskedAttention, IsCountedAsIllamaDoes) {
  for (const char* name : {"illama_tiny_patch16_224", "illama_base_patch16_224", "darl_base_patch16_224"}) {
    for (const int64_t side : {224, 256}) {
      const bool darl = std::string(name).starts_with("darl");
      const ModelSpec spec = resolve_model(name, darl ? settings({{"causal", true}}) : Value());
      const int64_t width = spec.settings.find("dim")->as_int(),
                    depth = spec.settings.find("depth")->as_int();
      const int64_t tokens = side / 16 * (side / 16) + 1;
      const int64_t full = 4 * tokens * width * width + 2 * tokens * tokens * width;
      const int64_t causal =
          4 * tokens * width * width + tokens * tokens * width + (tokens * tokens / 2 + 1) * width;
      EXPECT_EQ(masked_out(spec, side, side), depth * (full - causal)) << name;
    }
  }
}

TEST(MaskedAttention, FollowsTheSettings) {
  const auto of = [](const char* name, Value::Table entries) {
    return masked_out(resolve_model(name, Value(std::move(entries))), 224, 224);
  };
  const int64_t causal = of("illama_tiny", {});
  EXPECT_EQ(of("illama_tiny", {{"mask", "before"}}), causal);
  EXPECT_EQ(of("illama_tiny", {{"mask", "none"}}), 0);
  // The last token sees all anyway; a first one sees 196 more.
  EXPECT_EQ(of("illama_tiny", {{"mask", "modified"}}), causal);
  EXPECT_EQ(of("illama_tiny", {{"mask", "modified"}, {"class_token", "first"}}), causal - 12 * 196 * 192);
  EXPECT_EQ(of("darl_base_patch16_224", {}), 0);
}

double deviation(const torch::Tensor& values) { return values.std().item<double>(); }

// iLLaMA: Tables 12 to 15 print a truncated normal of 0.2, its code has 0.02.
TEST(FirstWeights, OfIllamaHaveTheDeviationAskedFor) {
  const auto with = [](Value::Table extra) {
    Value all(Value::Table{{"dim", 64}, {"heads", 2}, {"depth", 1}, {"image_size", 32}, {"classes", 50}});
    merge(all, Value(std::move(extra)));
    return build_classifier(resolve_model("illama", all), 3)->backbone->named_parameters();
  };
  const auto code = with({}), table = with({{"init_std", 0.2}});
  for (const char* name :
       {"blocks.0.attn.qkv.weight", "blocks.0.mlp.fc1.weight", "head.weight", "pos_embed"}) {
    EXPECT_NEAR(deviation(code[name]), 0.02, 0.002) << name;
    EXPECT_NEAR(deviation(table[name]), 0.2, 0.02) << name;
    EXPECT_LE(table[name].abs().max().item<double>(), 2) << name;
  }
  EXPECT_TRUE(torch::equal(code["patch_embed.proj.weight"], table["patch_embed.proj.weight"]));
  EXPECT_THROW(with({{"init_std", 0.0}}), Error);
}

}  // namespace
}  // namespace tessera::models::papers_test
