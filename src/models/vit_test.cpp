// Effects of the ViT's options on names, groups and settings; the numbers are in tests/parity.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "models/base/model.h"
#include "models/heads/class_head.h"

namespace tessera::models::vit_test {
namespace {

Value small(Value extra = {}) {
  Value settings;
  settings.set("image_size", 16);
  settings.set("patch_size", 8);
  settings.set("dim", 12);
  settings.set("heads", 2);
  settings.set("depth", 2);
  settings.set("classes", 3);
  merge(settings, extra);
  return settings;
}

Value with(const char* key, Value value) {
  Value extra;
  extra.set(key, std::move(value));
  return extra;
}

bool has(const Backbone& model, const std::string& name) { return model.named_parameters().contains(name); }

// timm applies no weight decay to any token or position.
TEST(Vit, TokensAndPositionsTakeNoDecay) {
  const auto model = meta_backbone(resolve_model("vit", small(with("reg_tokens", 2))));
  const std::vector<std::string> names = model->no_weight_decay();
  for (const char* name : {"cls_token", "reg_token", "pos_embed"}) {
    EXPECT_TRUE(has(*model, name)) << name;
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
}

TEST(Vit, RegistersWithoutPositionsEqualThoseWithZeros) {
  Value settings = small(with("reg_tokens", 2));
  const auto zeros = build_backbone(resolve_model("vit", settings), 1);
  settings.set("reg_positions", false);
  const auto none = build_backbone(resolve_model("vit", settings), 1);
  const torch::NoGradGuard no_grad;
  auto to = none->named_parameters();
  for (auto& entry : zeros->named_parameters()) {
    if (entry.key() == "pos_embed") {
      entry.value().slice(1, 1, 3).zero_();
      to["pos_embed"].copy_(torch::cat({entry.value().slice(1, 0, 1), entry.value().slice(1, 3)}, 1));
    } else {
      to[entry.key()].copy_(entry.value());
    }
  }
  zeros->eval(), none->eval();
  const torch::Tensor x = torch::randn({2, 3, 16, 16}), larger = torch::randn({1, 3, 24, 16});
  EXPECT_TRUE(torch::equal(zeros->embed(x), none->embed(x)));
  EXPECT_TRUE(torch::allclose(zeros->embed(larger), none->embed(larger), 1e-5, 1e-6));
}

TEST(Vit, TheLastNormStandsWherePoolingPutsIt) {
  const auto norms = [](Value extra) {
    const auto model = meta_backbone(resolve_model("vit", small(std::move(extra))));
    return std::pair(has(*model, "norm.weight"), has(*model, "fc_norm.weight"));
  };
  for (const char* pool : {"avg", "max", "avgmax"})
    EXPECT_EQ(norms(with("global_pool", pool)), std::pair(false, true)) << pool;
  for (const char* pool : {"token", "map"})
    EXPECT_EQ(norms(with("global_pool", pool)), std::pair(true, false)) << pool;
  EXPECT_EQ(norms(with("fc_norm", "on")), std::pair(false, true));
  EXPECT_EQ(norms(with("final_norm", false)), std::pair(false, false));
}

TEST(Vit, AttentionPoolingIsReadFromThePatchesAlone) {
  Value settings = small(with("global_pool", "map"));
  settings.set("reg_tokens", 1);
  const auto model = build_backbone(resolve_model("vit", settings), 1);
  model->eval();
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::randn({2, 3, 16, 16});
  const torch::Tensor pooled = model->embed(x);
  EXPECT_EQ(pooled.sizes(), (std::vector<int64_t>{2, 12}));
  auto parameters = model->named_parameters();
  EXPECT_EQ(parameters["attn_pool.latent"].sizes(), (std::vector<int64_t>{1, 1, 12}));
  parameters["attn_pool.latent"].mul_(5);
  EXPECT_FALSE(torch::allclose(model->embed(x), pooled, 1e-7, 1e-7));
  EXPECT_GT(model->macs(16, 16), meta_backbone(resolve_model("vit", small()))->macs(16, 16));
}

TEST(Vit, ClassTokenAndMeanAreReadNextToEachOther) {
  const auto embedding = [](const char* pool, const torch::Tensor& x) {
    Value settings = small(with("global_pool", pool));
    settings.set("fc_norm", "off");
    const auto model = build_backbone(resolve_model("vit", settings), 1);
    model->eval();
    return model->embed(x);
  };
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::randn({2, 3, 16, 16});
  EXPECT_TRUE(
      torch::equal(embedding("token_avg", x), torch::cat({embedding("token", x), embedding("avg", x)}, 1)));
}

// PyTorch's bicubic filter without antialiasing, with pixel centres at half numbers.
TEST(Vit, PositionsForAnotherGridMayBeBicubic) {
  namespace F = torch::nn::functional;
  const torch::NoGradGuard no_grad;
  const auto embedding = [](Value settings, const torch::Tensor& positions) {
    settings.set("global_pool", "avg");
    const auto model = build_backbone(resolve_model("vit", settings), 1);
    model->eval();
    model->named_parameters()["pos_embed"].copy_(positions);
    return model->embed(torch::zeros({1, 3, 32, 32}));
  };
  const torch::Tensor stored = torch::randn({1, 5, 12});
  const torch::Tensor moved = F::interpolate(stored.slice(1, 1).reshape({1, 2, 2, 12}).permute({0, 3, 1, 2}),
                                             F::InterpolateFuncOptions()
                                                 .size(std::vector<int64_t>{4, 4})
                                                 .mode(torch::kBicubic)
                                                 .align_corners(false));
  const torch::Tensor right =
      embedding(small(with("image_size", 32)),
                torch::cat({stored.slice(1, 0, 1), moved.flatten(2).transpose(1, 2)}, 1));
  EXPECT_TRUE(torch::allclose(embedding(small(with("resample", "bicubic")), stored), right, 1e-5, 1e-5));
  EXPECT_FALSE(torch::allclose(embedding(small(with("resample", "offset")), stored), right, 1e-5, 1e-5));
}

TEST(Vit, SettingsThatExcludeEachOtherAreUsageErrors) {
  const auto refused = [](std::initializer_list<std::pair<const char*, Value>> entries) {
    Value settings = small();
    for (const auto& [key, value] : entries) settings.set(key, value);
    EXPECT_THROW(resolve_model("vit", settings), Error);
  };
  refused({{"global_pool", "token"}, {"class_token", false}});
  refused({{"global_pool", "token_avg"}, {"class_token", false}});
  refused({{"global_pool", "token_avg"}, {"fc_norm", "on"}});
  refused({{"global_pool", "map"}, {"mlp", "swiglu_packed"}});
  refused({{"mlp", "swiglu_packed"}, {"mlp_ratio", 1.25}});
  refused({{"mlp_ratio", 0.01}});
  refused({{"distilled", true}, {"final_norm", false}});
  refused({{"norm_eps", 0.0}});
  refused({{"global_pool", "sum"}});
}

// The numbers of timm's models without their classifiers.
TEST(Vit, SizesHaveThePublishedNumbersOfParameters) {
  const std::vector<std::pair<const char*, int64_t>> published = {
      {"vit_tiny_patch16_224", 5524416},
      {"vit_tiny_patch16_384", 5597376},
      {"vit_small_patch16_224", 21665664},
      {"vit_small_patch16_384", 21811584},
      {"vit_small_patch32_224", 22493952},
      {"vit_small_patch32_384", 22530432},
      {"vit_base_patch8_224", 85807872},
      {"vit_base_patch16_224", 85798656},
      {"vit_base_patch16_384", 86090496},
      {"vit_base_patch32_224", 87455232},
      {"vit_base_patch32_384", 87528192},
      {"vit_large_patch16_224", 303301632},
      {"vit_large_patch16_384", 303690752},
      {"vit_large_patch32_384", 305607680},
      {"vit_huge_patch14_224", 630764800},
      {"vit_base_patch16_siglip_224", 92884224},
      {"vit_large_patch16_siglip_256", 315956224},
      {"vit_so400m_patch14_siglip_224", 427680704},
      {"vit_base_patch16_reg4_gap_256", 85846272},
      {"vit_small_patch8_224", 21670272},
      {"vit_giant_patch14_224", 1011202432},
      {"vit_medium_patch16_gap_240", 38332416},
      {"vit_medium_patch16_gap_256", 38348288},
      {"vit_medium_patch16_gap_384", 38512128},
      {"vit_betwixt_patch16_gap_256", 59731840},
      {"vit_wee_patch16_reg1_gap_256", 13165568},
      {"vit_little_patch16_reg1_gap_256", 22194048},
      {"vit_little_patch16_reg4_gap_256", 22195008},
      {"vit_medium_patch16_reg1_gap_256", 38367232},
      {"vit_medium_patch16_reg4_gap_256", 38368768},
      {"vit_mediumd_patch16_reg4_gap_256", 63596032},
      {"vit_mediumd_patch16_reg4_gap_384", 63759872},
      {"vit_betwixt_patch16_reg1_gap_256", 59755520},
      {"vit_betwixt_patch16_reg4_gap_256", 59757440},
      {"vit_betwixt_patch16_reg4_gap_384", 59962240},
      {"vit_so150m_patch16_reg4_map_256", 140584064},
      {"vit_so150m_patch16_reg4_gap_256", 133234560},
      {"vit_so150m_patch16_reg4_gap_384", 133521280},
      {"vit_so150m2_patch16_reg1_gap_256", 135226560},
      {"vit_so150m2_patch16_reg1_gap_384", 135492800},
      {"vit_so150m2_patch16_reg1_gap_448", 135665856},
      {"vit_base_patch32_clip_224", 87456000},
      {"vit_base_patch32_clip_256", 87467520},
      {"vit_base_patch32_clip_384", 87528960},
      {"vit_base_patch32_clip_448", 87568896},
      {"vit_base_patch16_clip_224", 85799424},
      {"vit_base_patch16_clip_384", 86091264},
      {"vit_large_patch14_clip_224", 303179776},
      {"vit_large_patch14_clip_336", 303507456},
      {"vit_huge_patch14_clip_224", 630766080},
      {"vit_huge_patch14_clip_336", 631175680},
      {"vit_huge_patch14_clip_378", 631371520},
      {"vit_giant_patch14_clip_224", 1011203840},
      {"vit_gigantic_patch14_clip_224", 1842777344},
      {"vit_base_patch32_clip_quickgelu_224", 87456000},
      {"vit_base_patch16_clip_quickgelu_224", 85799424},
      {"vit_large_patch14_clip_quickgelu_224", 303179776},
      {"vit_large_patch14_clip_quickgelu_336", 303507456},
      {"vit_huge_patch14_clip_quickgelu_224", 630766080},
      {"vit_base_patch16_siglip_256", 92930304},
      {"vit_base_patch16_siglip_384", 93176064},
      {"vit_base_patch16_siglip_512", 93520128},
      {"vit_base_patch32_siglip_256", 94552320},
      {"vit_large_patch16_siglip_384", 316283904},
      {"vit_large_patch16_siglip_512", 316742656},
      {"vit_so400m_patch14_siglip_378", 428225600},
      {"vit_so400m_patch14_siglip_384", 428225600},
      {"vit_so400m_patch16_siglip_256", 427888064},
      {"vit_so400m_patch16_siglip_384", 428256704},
      {"vit_so400m_patch16_siglip_512", 428772800},
      {"vit_giantopt_patch16_siglip_256", 1163168256},
      {"vit_giantopt_patch16_siglip_384", 1163659776},
      {"vit_base_patch16_siglip_gap_224", 85797120},
      {"vit_base_patch16_siglip_gap_256", 85843200},
      {"vit_base_patch16_siglip_gap_384", 86088960},
      {"vit_base_patch16_siglip_gap_512", 86433024},
      {"vit_large_patch16_siglip_gap_256", 303361024},
      {"vit_large_patch16_siglip_gap_384", 303688704},
      {"vit_so400m_patch14_siglip_gap_224", 412442352},
      {"vit_so400m_patch14_siglip_gap_384", 412987248},
  };
  for (const auto& [name, parameters] : published)
    EXPECT_EQ(
        count_parameters(*meta_backbone(resolve_model(name, Value(Value::Table{{"classes", int64_t{0}}})))),
        parameters)
        << name;
}

}  // namespace
}  // namespace tessera::models::vit_test
