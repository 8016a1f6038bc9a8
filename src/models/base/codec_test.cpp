#include "models/base/codec.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "models/base/family.h"

namespace tessera::models::codec_test {
namespace {

std::shared_ptr<Backbone> small(Value extra = {}) {
  Value settings = table({{"image_size", 16}, {"dims", Value::Array{8, 16}}, {"depth", 1}, {"groups", 4}});
  merge(settings, extra);
  auto model = build_backbone(resolve_model("autoencoder_kl", settings), 3);
  model->eval();
  return model;
}

LatentCodec& codec(const std::shared_ptr<Backbone>& model) { return dynamic_cast<LatentCodec&>(*model); }

TEST(AutoencoderKl, HasThePublishedSize) {
  const auto model = meta_backbone(resolve_model("sd-vae-ft-ema"));
  EXPECT_EQ(count_parameters(*model), 83653863);
  EXPECT_EQ(codec(model).factor(), 8);
  EXPECT_EQ(codec(model).latent_channels(), 4);
  EXPECT_EQ(codec(model).scaling_factor(), 0.18215);
}

TEST(AutoencoderKl, EncodesAndDecodesAnyWholeNumberOfPlaces) {
  const auto model = small();
  const torch::NoGradGuard no_grad;
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{16, 16}, {6, 10}}) {
    torch::manual_seed(1);
    const LatentDistribution latent = codec(model).encode(torch::randn({2, 3, height, width}));
    EXPECT_EQ(latent.mean.sizes(), (std::vector<int64_t>{2, 4, height / 2, width / 2}));
    EXPECT_EQ(codec(model).decode(latent.mean).sizes(), (std::vector<int64_t>{2, 3, height, width}));
    EXPECT_EQ(latent.kl().sizes(), (std::vector<int64_t>{2}));
    EXPECT_GE(latent.kl().min().item<double>(), 0);
  }
  EXPECT_ANY_THROW(codec(model).moments(torch::zeros({1, 3, 7, 8})));
  EXPECT_ANY_THROW(codec(model).decode(torch::zeros({1, 3, 8, 8})));
  EXPECT_ANY_THROW(small(table({{"image_size", 15}})));
  EXPECT_ANY_THROW(small(table({{"groups", 3}})));
}

TEST(AutoencoderKl, EveryParameterGetsAGradientFromTheRoundTrip) {
  const auto model = small();
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({2, 3, 16, 16});
  const LatentDistribution latent = codec(model).encode(x);
  ((codec(model).decode(latent.sample(torch::randn_like(latent.mean))) - x).abs().sum() + latent.kl().sum())
      .backward();
  for (const auto& entry : model->named_parameters()) {
    ASSERT_TRUE(entry.value().grad().defined()) << entry.key();
    // A constant added to all keys does not change attention.
    if (entry.key().ends_with("attn_1.k.bias")) continue;
    EXPECT_GT(entry.value().grad().abs().max().item<double>(), 0) << entry.key();
  }
}

TEST(Tiles, OfTheWholeImageAreTheWhole) {
  const auto model = small();
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({1, 3, 8, 12});
  const Tiles one{.latent_side = 16, .image_side = 32, .overlap = 0};
  const LatentDistribution whole = codec(model).encode(x), tiled = encode_in_tiles(codec(model), x, one);
  EXPECT_TRUE(torch::equal(tiled.mean, whole.mean));
  EXPECT_TRUE(torch::equal(decode_in_tiles(codec(model), whole.mean, one), codec(model).decode(whole.mean)));
}

// One head, as wide as in the published model.
TEST(AutoencoderKl, WideAttentionAgreesInBothPrecisions) {
  const auto model = small(table({{"dims", Value::Array{512}}, {"groups", 32}}));
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const torch::Tensor latent = torch::randn({1, 4, 5, 7});
  const torch::Tensor narrow = codec(model).decode(latent);
  model->to(torch::kFloat64);
  const torch::Tensor wide = codec(model).decode(latent.to(torch::kFloat64));
  EXPECT_LT((narrow - wide).abs().max().item<double>(), 1e-4 * wide.abs().max().item<double>());
}

TEST(Tiles, HaveTheSizeOfTheWhole) {
  const auto model = small();
  torch::manual_seed(1);
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{24, 40}, {26, 18}, {4, 64}}) {
    const torch::Tensor x = torch::randn({1, 3, height, width});
    const LatentDistribution latent =
        encode_in_tiles(codec(model), x, {.latent_side = 8, .image_side = 16, .overlap = 0.25});
    EXPECT_EQ(latent.mean.sizes(), (std::vector<int64_t>{1, 4, height / 2, width / 2}));
    const torch::Tensor y =
        decode_in_tiles(codec(model), latent.mean, {.latent_side = 8, .image_side = 16, .overlap = 0.25});
    EXPECT_EQ(y.sizes(), x.sizes());
    EXPECT_TRUE(y.isfinite().all().item<bool>());
  }
  EXPECT_ANY_THROW(decode_in_tiles(codec(model), torch::zeros({1, 4, 8, 8}), {8, 16, 1.0}));
}

TEST(AutoencoderKl, ItsSettingsFollowFromItsTensors) {
  for (const Value& extra :
       {Value(), table({{"dims", Value::Array{8, 16, 16}}, {"depth", 3}, {"latent_channels", 3}})}) {
    const auto model = small(extra);
    const auto shape = [&](const std::string& name) {
      const auto parameters = model->named_parameters();
      const auto* found = parameters.find(name);
      return found ? found->sizes().vec() : std::vector<int64_t>{};
    };
    Value settings = autoencoder_settings(shape, "f");
    settings.set("groups", 4);
    settings.set("image_size", 16);
    const auto again = build_backbone(resolve_model("autoencoder_kl", settings), 1);
    EXPECT_EQ(again->named_parameters().keys(), model->named_parameters().keys());
  }
  EXPECT_ANY_THROW(autoencoder_settings([](const std::string&) { return std::vector<int64_t>{}; }, "f"));
}

TEST(Codecs, AreFoundByNameBesideBackbones) {
  EXPECT_EQ(find_family("autoencoder_kl").name, "autoencoder_kl");
  std::set<std::string> names;
  for (const Family& family : families()) names.insert(family.name);
  for (const Family& family : codec_families()) EXPECT_FALSE(names.contains(family.name));
}

}  // namespace
}  // namespace tessera::models::codec_test
