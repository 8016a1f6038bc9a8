// The families that the papers compare with: properties that distinguish them.
#include <gtest/gtest.h>

#include "core/error.h"
#include "models/backbones/baselines.h"
#include "models/backbones/models_testing.h"
#include "models/base/encoder.h"
#include "nn/named_tensors.h"

namespace tessera::models::baselines_test {
namespace {

using torch::Tensor;

ModelSpec spec_of(const std::string& family, Value::Table settings) {
  return resolve_model(family, Value(std::move(settings)));
}

ModelSpec vanilla(bool merged, int64_t slope_epochs = 0) {
  return spec_of("vanillanet", {{"dims", Value::Array{6, 8, 8, 12}},
                                {"strides", Value::Array{1, 2, 2}},
                                {"act_num", 2},
                                {"head_width", 7},
                                {"classes", 5},
                                {"merged", merged},
                                {"slope_epochs", slope_epochs}});
}

// Running statistics away from 0 and 1.
std::shared_ptr<Classifier> trained_vanilla(int64_t slope_epochs = 0) {
  const auto model = lively(vanilla(false, slope_epochs), 0.3);
  const torch::NoGradGuard no_grad;
  for (auto& item : model->backbone->named_buffers()) {
    if (item.key() == "act_learn") continue;
    item.value().add_(0.3 * torch::rand_like(item.value()));
  }
  return model;
}

TEST(VanillaNet, MergedGivesTheSameScores) {
  const torch::NoGradGuard no_grad;
  const auto trained = trained_vanilla();
  const auto merged = lively(vanilla(true), 0);
  auto parameters = merged->backbone->named_parameters();
  const NamedTensors tensors = merged_vanillanet(named_state(*trained->backbone));
  EXPECT_EQ(tensors.size(), parameters.size());
  for (const auto& [name, tensor] : tensors) {
    ASSERT_TRUE(parameters.contains(name)) << name;
    ASSERT_EQ(parameters[name].sizes(), tensor.sizes()) << name;
    parameters[name].copy_(tensor);
  }
  torch::manual_seed(4);
  const Tensor images = torch::randn({2, 3, 40, 24}, torch::kFloat64);
  const Tensor expected = trained->forward(images);
  EXPECT_TRUE(torch::allclose(merged->forward(images), expected, 1e-9, 1e-10));
  EXPECT_GT(expected.std().item<double>(), 0.01);
}

TEST(VanillaNet, SlopeGrowsWithTheEpochsAndMustBeOneToMerge) {
  const torch::NoGradGuard no_grad;
  const auto model = trained_vanilla(4);
  torch::manual_seed(4);
  const Tensor images = torch::randn({1, 3, 32, 32}, torch::kFloat64);
  const Tensor whole = model->forward(images);
  model->backbone->before_step({.step = 25, .steps = 100, .steps_per_epoch = 10});
  EXPECT_EQ(model->backbone->named_buffers()["act_learn"].item<double>(), 0.5);
  EXPECT_FALSE(torch::allclose(model->forward(images), whole));
  EXPECT_THROW(merged_vanillanet(named_state(*model->backbone)), Error);
  model->backbone->before_step({.step = 70, .steps = 100, .steps_per_epoch = 10});
  EXPECT_TRUE(torch::equal(model->forward(images), whole));
  EXPECT_NO_THROW(merged_vanillanet(named_state(*model->backbone)));
}

// A token reacts to a later patch only if that is in the prefix.
TEST(Aim, TokensSeeThePrefixAndEarlierPatches) {
  const torch::NoGradGuard no_grad;
  const auto model = lively(spec_of("aim", {{"image_size", 16},
                                            {"patch_size", 4},
                                            {"dim", 16},
                                            {"depth", 2},
                                            {"heads", 2},
                                            {"probe_layers", 1},
                                            {"classes", 0}}),
                            0.1);
  auto& encoder = dynamic_cast<TokenEncoder&>(*model->backbone);
  constexpr int64_t kPrefix = 5, kPatches = 16;
  torch::manual_seed(3);
  const Tensor images = torch::randn({2, 3, 16, 16}, torch::kFloat64);
  const auto encoded = [&](const Tensor& from) {
    Tokens tokens = encoder.tokenise(from);
    const Tensor prefix = (torch::arange(kPatches) < kPrefix).expand({2, -1});
    tokens.extras.bias = prefix_bias(prefix).to(torch::kFloat64);
    return encoder.encode(tokens).tokens;
  };
  const Tensor before = encoded(images);
  for (int64_t changed = 0; changed < kPatches; ++changed) {
    Tensor other = images.clone();
    other.slice(2, changed / 4 * 4, changed / 4 * 4 + 4).slice(3, changed % 4 * 4, changed % 4 * 4 + 4) += 1;
    const Tensor moved = (encoded(other) - before).abs().amax({0, 2});
    for (int64_t token = 0; token < kPatches; ++token)
      EXPECT_EQ(moved[token].item<double>() > 1e-12, changed < kPrefix || token >= changed)
          << changed << " " << token;
  }
}

// Rotary positions are scaled to the reference grid, so that they are the same at twice the resolution.
TEST(Eva02, PositionsKeepTheirAnglesAtOtherResolutions) {
  const auto rotation = [](int64_t side) {
    const auto model = build_classifier(spec_of("eva02", {{"image_size", side},
                                                          {"patch_size", 4},
                                                          {"dim", 16},
                                                          {"depth", 1},
                                                          {"heads", 2},
                                                          {"classes", 0}}),
                                        1);
    auto& encoder = dynamic_cast<TokenEncoder&>(*model->backbone);
    return encoder.tokenise(torch::zeros({1, 3, side, side})).extras.rotation.angles;
  };
  const torch::NoGradGuard no_grad;
  const Tensor small = rotation(16), large = rotation(32);
  EXPECT_EQ(small[0].abs().max().item<double>(), 0);  // class token
  const Tensor coarse = small.slice(0, 1).view({4, 4, -1});
  const Tensor fine = large.slice(0, 1).view({8, 8, -1});
  EXPECT_TRUE(torch::allclose(fine.slice(0, 0, 8, 2).slice(1, 0, 8, 2), coarse, 1e-6, 1e-6));
}

// Pooling less the input itself is 0 on a flat map: the mixer adds nothing.
TEST(PoolFormer, MixerIgnoresFlatMaps) {
  const torch::NoGradGuard no_grad;
  const auto settings = [](int64_t pool) {
    return spec_of("poolformer", {{"dims", Value::Array{8}},
                                  {"depths", Value::Array{2}},
                                  {"pool_size", pool},
                                  {"init_values", 1.0},
                                  {"classes", 0}});
  };
  const auto one = lively(settings(1), 0.1), three = lively(settings(3), 0.1);
  torch::manual_seed(3);
  const Tensor images = torch::randn({1, 3, 4, 4}, torch::kFloat64);  // one cell
  EXPECT_TRUE(torch::allclose(one->forward(images), three->forward(images)));
  const Tensor larger = torch::randn({1, 3, 16, 16}, torch::kFloat64);
  EXPECT_FALSE(torch::allclose(one->forward(larger), three->forward(larger)));
}

}  // namespace
}  // namespace tessera::models::baselines_test
