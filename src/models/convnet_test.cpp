// Properties of ResNet and ConvNeXt.
#include <gtest/gtest.h>

#include "core/error.h"
#include "models/backbones/models_testing.h"

namespace tessera::models::convnet_test {
namespace {

using torch::Tensor;

ModelSpec small(const std::string& name, Value::Table entries = {}) {
  Value all(Value::Table{{"image_size", 64},
                         {"dims", Value::Array{16, 32, 48, 64}},
                         {"depths", Value::Array{1, 2, 1, 1}},
                         {"classes", 3}});
  if (name.find("clip") != std::string::npos)
    merge(all, Value(Value::Table{{"heads", 4}, {"embed_dim", 12}}));
  merge(all, Value(std::move(entries)));
  return resolve_model(name, all);
}

Tensor image(int64_t height, int64_t width) {
  torch::manual_seed(3);
  return torch::randn({2, 3, height, width}, torch::kFloat64);
}

double billions(const char* name, int64_t side = 224) {
  return static_cast<double>(meta_classifier(resolve_model(name))->macs(side, side)) * 1e-9;
}

// The numbers in the papers' tables; for ResNet those of torchvision (stride in the 3x3 convolution).
TEST(Macs, OfResNetAndConvNextAreThePublishedOnes) {
  EXPECT_NEAR(billions("resnet18"), 1.81, 0.01);
  EXPECT_NEAR(billions("resnet34"), 3.66, 0.01);
  EXPECT_NEAR(billions("resnet50"), 4.09, 0.01);
  EXPECT_NEAR(billions("resnet101"), 7.80, 0.01);
  EXPECT_NEAR(billions("resnet152"), 11.51, 0.01);
  EXPECT_NEAR(billions("convnext_tiny"), 4.5, 0.05);
  EXPECT_NEAR(billions("convnext_small"), 8.7, 0.05);
  EXPECT_NEAR(billions("convnext_base"), 15.4, 0.05);
  EXPECT_NEAR(billions("convnext_large"), 34.4, 0.05);
  EXPECT_NEAR(billions("convnext_xlarge"), 60.9, 0.1);
  EXPECT_NEAR(billions("convnextv2_nano"), 2.45, 0.01);
  EXPECT_NEAR(billions("convnextv2_tiny"), 4.47, 0.02);
  EXPECT_NEAR(billions("convnextv2_base"), 15.4, 0.05);
}

TEST(Parameters, OfResNetAndConvNextAreThePublishedOnes) {
  const auto millions = [](const char* name) {
    return static_cast<double>(count_parameters(*meta_classifier(resolve_model(name))->backbone)) * 1e-6;
  };
  EXPECT_NEAR(millions("resnet18"), 11.690, 0.001);
  EXPECT_NEAR(millions("resnet34"), 21.798, 0.001);
  EXPECT_NEAR(millions("resnet50"), 25.557, 0.001);
  EXPECT_NEAR(millions("resnet26"), 15.995, 0.001);
  EXPECT_NEAR(millions("resnet101"), 44.549, 0.001);
  EXPECT_NEAR(millions("resnet152"), 60.193, 0.001);
  EXPECT_NEAR(millions("RN50"), 38.316896, 1e-6);
  EXPECT_NEAR(millions("convnext_atto"), 3.69552, 1e-6);
  EXPECT_NEAR(millions("convnext_femto"), 5.217784, 1e-6);
  EXPECT_NEAR(millions("convnext_pico"), 9.045672, 1e-6);
  EXPECT_NEAR(millions("convnext_nano"), 15.59356, 1e-6);
  EXPECT_NEAR(millions("convnext_small"), 50.224, 0.001);
  EXPECT_NEAR(millions("convnext_large"), 197.767, 0.001);
  EXPECT_NEAR(millions("convnext_xlarge"), 350.197, 0.001);
  EXPECT_NEAR(millions("convnextv2_nano"), 15.624, 0.001);
  EXPECT_NEAR(millions("convnextv2_base"), 88.718, 0.001);
  EXPECT_NEAR(millions("convnextv2_atto"), 3.7084, 1e-6);
  EXPECT_NEAR(millions("convnextv2_femto"), 5.23324, 1e-6);
  EXPECT_NEAR(millions("convnextv2_pico"), 9.06628, 1e-6);
  EXPECT_NEAR(millions("convnextv2_large"), 197.95684, 1e-6);
  EXPECT_NEAR(millions("convnextv2_huge"), 660.28964, 1e-6);
}

TEST(ResNet, MapsHalveUntilTheOutputStride) {
  const torch::NoGradGuard no_grad;
  for (const char* name : {"resnet18", "resnet50", "resnet50_clip"})
    for (const auto& [stride, sides] :
         {std::pair{32, std::vector<int64_t>{16, 8, 4, 2}}, {16, {16, 8, 4, 4}}, {8, {16, 8, 8, 8}}}) {
      const auto model = lively(small(name, {{"output_stride", stride}}), 0.1);
      const auto maps = model->backbone->features(image(64, 96), {0, 1, 2, 3});
      for (size_t i = 0; i < 4; ++i)
        EXPECT_EQ(maps[i].sizes(), (std::vector<int64_t>{2, maps[i].size(1), sides[i], sides[i] * 3 / 2}))
            << name;
    }
}

// ResNet-18 as usual for CIFAR-10: 11,173,962 parameters, as timm's with such a stem.
TEST(ResNet, AStemForSmallImagesKeepsTheGrid) {
  const torch::NoGradGuard no_grad;
  const Value settings(Value::Table{{"stem", "conv3"}, {"classes", 10}, {"image_size", 32}});
  const auto model = lively(resolve_model("resnet18", settings), 0.1);
  EXPECT_EQ(count_parameters(*model->backbone), 11173962);
  EXPECT_EQ(model->backbone->macs(32, 32) / 1000, 555417);
  const auto maps = model->backbone->features(torch::randn({1, 3, 32, 30}, torch::kFloat64), {0, 1, 2, 3});
  for (size_t i = 0; i < 4; ++i) {
    const int64_t stride = int64_t{1} << i;
    EXPECT_EQ(maps[i].sizes(),
              (std::vector<int64_t>{1, int64_t{64} << i, 32 / stride, (29 + stride) / stride}));
  }
}

// Every stage halves the grid, odd sizes downwards, and its first convolution counts at the size before.
TEST(ResNet, PoolingHalvesTheGridOfEveryStage) {
  const torch::NoGradGuard no_grad;
  const Value settings(Value::Table{{"stem", "conv3"},
                                    {"block", "basic"},
                                    {"pool_strides", true},
                                    {"stem_dim", 24},
                                    {"dims", Value::Array{64, 256, 256}},
                                    {"depths", Value::Array{1, 1, 1}},
                                    {"classes", 10},
                                    {"image_size", 32}});
  const auto model = lively(resolve_model("resnet", settings), 0.1);
  const int64_t stem = 27 * 24 * 1024, first = 9 * 24 * 64 * 1024 + (9 * 64 + 24) * 64 * 256,
                second = 9 * 64 * 256 * 256 + (9 * 256 + 64) * 256 * 64,
                third = 9 * 256 * 256 * 64 + (9 * 256 + 256) * 256 * 16;
  EXPECT_EQ(model->backbone->macs(32, 32), stem + first + second + third);
  const auto maps = model->backbone->features(torch::randn({2, 3, 33, 30}, torch::kFloat64), {0, 1, 2});
  EXPECT_EQ(maps[0].sizes(), (std::vector<int64_t>{2, 64, 16, 15}));
  EXPECT_EQ(maps[1].sizes(), (std::vector<int64_t>{2, 256, 8, 7}));
  EXPECT_EQ(maps[2].sizes(), (std::vector<int64_t>{2, 256, 4, 3}));
}

// A dilated stage sees the same as the halving one: the results agree at every second cell.
TEST(ResNet, DilationKeepsWhatTheStrideGives) {
  const torch::NoGradGuard no_grad;
  const auto halving = lively(small("resnet50"), 0.1),
             dilated = lively(small("resnet50", {{"output_stride", 16}}), 0.1);
  const Tensor coarse = halving->backbone->features(image(64, 64), {3})[0],
               fine = dilated->backbone->features(image(64, 64), {3})[0];
  EXPECT_TRUE(torch::allclose(coarse, fine.slice(2, 0, 4, 2).slice(3, 0, 4, 2)));
}

TEST(ResNet, LastNormsStartAtZeroOnDemand) {
  const auto starts_at = [](const char* name, bool zero, const char* norm) {
    const auto model = build_classifier(small(name, {{"zero_init_last", zero}}), 1);
    return model->backbone->named_parameters()[norm].mean().item<double>();
  };
  EXPECT_EQ(starts_at("resnet50", true, "layer2.1.bn3.weight"), 0);
  EXPECT_EQ(starts_at("resnet50", true, "layer2.1.bn2.weight"), 1);
  EXPECT_EQ(starts_at("resnet18", true, "layer1.0.bn2.weight"), 0);
  EXPECT_EQ(starts_at("resnet50", false, "layer2.1.bn3.weight"), 1);
  EXPECT_EQ(starts_at("resnet50_clip", true, "bn3.weight"), 1);  // in the stem
}

// The paper's form, as in Caffe and detectron2's model zoo.
TEST(ResNet, TheFirstConvolutionOfABlockHalvesTheGridWhereAsked) {
  const auto build = [](bool first) { return lively(small("resnet50", {{"stride_first", first}}), 0.1); };
  const auto usual = build(false), paper = build(true);
  const torch::Tensor x = image(64, 64);
  const auto a = usual->backbone->features(x, {0, 1}), b = paper->backbone->features(x, {0, 1});
  EXPECT_EQ(a[1].sizes(), b[1].sizes());
  EXPECT_TRUE(torch::equal(a[0], b[0])) << "nothing is halved in the first stage";
  EXPECT_FALSE(torch::equal(a[1], b[1]));
  const auto published =
      meta_classifier(resolve_model("resnet50", Value(Value::Table{{"stride_first", true}})));
  EXPECT_NEAR(static_cast<double>(published->macs(224, 224)) * 1e-9, 3.86, 0.01);
  EXPECT_THROW(build_classifier(small("resnet18", {{"stride_first", true}}), 1), Error);
}

TEST(ResNet, StatisticsAreOfAllSamplesUnderDropPath) {
  const auto statistics = [](double rate) {
    const auto model = build_classifier(
        small("resnet50",
              {{"drop_path", rate}, {"drop_path_decay", false}, {"depths", Value::Array{1, 1, 1, 1}}}),
        1);
    model->backbone->train();
    model->forward(image(64, 64).to(torch::kFloat32), {.seed = 5, .step = 2});
    return model->backbone->named_buffers()["layer1.0.bn3.running_mean"].clone();
  };
  EXPECT_TRUE(torch::equal(statistics(0), statistics(0.9)));
}

TEST(ResNet, PositionsOfAttentionPoolingFollowTheGrid) {
  const auto model = lively(small("resnet50_clip"), 0.1);  // 2 x 2 cells
  const char* name = "attnpool.positional_embedding";
  EXPECT_EQ(model->backbone->fit(name, torch::randn({1 + 9, 64})).sizes(), (std::vector<int64_t>{5, 64}));
  EXPECT_FALSE(model->backbone->fit(name, torch::randn({1 + 8, 64})).defined());
  EXPECT_FALSE(model->backbone->fit("conv1.weight", torch::randn({1 + 9, 64})).defined());
  EXPECT_EQ(model->backbone->embed(image(64, 160)).sizes(), (std::vector<int64_t>{2, 12}));
}

TEST(ConvNext, FitsVectorsWithFurtherAxes) {
  const auto model = build_classifier(small("convnextv2_tiny"), 1);
  const Tensor stored = torch::randn({1, 1, 1, 64});
  EXPECT_TRUE(
      torch::equal(model->backbone->fit("stages.0.blocks.0.mlp.grn.weight", stored), stored.flatten()));
  EXPECT_FALSE(
      model->backbone->fit("stages.0.blocks.0.mlp.grn.weight", torch::randn({1, 1, 1, 60})).defined());
  EXPECT_FALSE(model->backbone->fit("stages.0.blocks.0.mlp.fc1.weight", torch::randn({64, 16})).defined());
}

// The norm before the head belongs to the backbone: a new head does not replace it.
TEST(ConvNext, ANewHeadKeepsTheNormInFrontOfIt) {
  const auto model = build_classifier(small("convnext_tiny"), 1);
  const Tensor before = model->backbone->named_parameters()["head.norm.weight"];
  model->reset_head(7);
  EXPECT_TRUE(model->backbone->named_parameters()["head.norm.weight"].is_same(before));
  EXPECT_EQ(model->backbone->named_parameters()["head.fc.weight"].size(0), 7);
  model->reset_head(0);
  EXPECT_TRUE(model->backbone->named_parameters().contains("head.norm.weight"));
  EXPECT_FALSE(model->backbone->named_parameters().contains("head.fc.weight"));
}

// With one scale for all channels, a response is divided by the channels' mean response.
TEST(ConvNext, ResponseNormStartsAsTheIdentity) {
  const auto plain = build_classifier(small("convnext_tiny", {{"init_values", 0.0}}), 1),
             normed = build_classifier(small("convnextv2_tiny"), 1);
  plain->backbone->eval(), normed->backbone->eval();
  const torch::NoGradGuard no_grad;
  const Tensor x = image(64, 64).to(torch::kFloat32);
  EXPECT_TRUE(torch::allclose(plain->forward(x), normed->forward(x), 1e-4, 1e-5));
}

TEST(ConvNets, ErrorsNameTheKey) {
  const auto message = [](const std::string& name, Value::Table entries) {
    try {
      small(name, std::move(entries));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message("resnet50", {{"depths", Value::Array{2}}}).find("model.depths"), std::string::npos);
  EXPECT_NE(message("resnet50", {{"dims", Value::Array{16, 30, 48, 64}}}).find("30"), std::string::npos);
  EXPECT_NE(message("resnet50_clip", {{"dims", Value::Array{20, 32, 48, 64}}}).find("must be even"),
            std::string::npos);
  EXPECT_NE(message("resnet50_clip", {{"heads", 5}}).find("model.heads"), std::string::npos);
  EXPECT_NE(message("resnet50", {{"stem", "conv5"}}).find("conv7, deep"), std::string::npos);
  EXPECT_NE(message("convnext_tiny", {{"depths", Value::Array{2}}}).find("model.depths"), std::string::npos);
  EXPECT_NE(message("convnext_tiny", {{"heads", 3}}).find("model"), std::string::npos);
}

}  // namespace
}  // namespace tessera::models::convnet_test
