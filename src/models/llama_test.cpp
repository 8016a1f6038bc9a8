// VisionLLaMA (plain and pyramid), Twins and iLLaMA: the effects of their options.
#include <gtest/gtest.h>

#include "core/error.h"
#include "models/backbones/baselines.h"
#include "models/backbones/models_testing.h"
#include "models/backbones/twins_stages.h"

namespace tessera::models::llama_test {
namespace {

using torch::Tensor;

Value settings(Value::Table entries) { return Value(std::move(entries)); }

// Returns a small float64 model in evaluation mode, every parameter well away from zero.
std::shared_ptr<Classifier> small(const char* family, Value::Table extra = {}) {
  const bool stages = std::string(family) == "visionllama_pyramid" || std::string(family) == "twins_svt";
  const auto list = [](std::vector<int64_t> items) {
    return Value(Value::Array(items.begin(), items.end()));
  };
  Value all = stages ? settings({{"dims", list({8, 16})},
                                 {"depths", list({2, 2})},
                                 {"heads", list({2, 2})},
                                 {"windows", list({3, 2})},
                                 {"sub_sampling", list({2, 1})},
                                 {"patch_size", 2},
                                 {"image_size", 16},
                                 {"classes", 3}})
                     : settings({{"dim", 16},
                                 {"heads", 2},
                                 {"depth", 2},
                                 {"patch_size", 4},
                                 {"image_size", 16},
                                 {"classes", 3}});
  if (std::string(family) == "visionllama_pyramid") all.set("rope_anchor", Value::Array{8.0, 4.0});
  merge(all, settings(std::move(extra)));
  return lively(resolve_model(family, all), 0.3);
}

Tensor image(int64_t height = 16, int64_t width = 16) {
  torch::manual_seed(4);
  return torch::randn({2, 3, height, width}, torch::kFloat64);
}

// Returns the image with its last patch of 4 x 4 changed.
Tensor changed_at_the_end(const Tensor& images) {
  Tensor other = images.clone();
  other.slice(2, -4).slice(3, -4).add_(1);
  return other;
}

void copy_by_name(const Classifier& from, Classifier& to) {
  const torch::NoGradGuard no_grad;
  auto targets = to.backbone->named_parameters();
  ASSERT_EQ(from.backbone->named_parameters().size(), targets.size());
  for (const auto& entry : from.backbone->named_parameters()) targets[entry.key()].copy_(entry.value());
}

bool close(const Tensor& a, const Tensor& b) { return torch::allclose(a, b, 1e-10, 1e-12); }

Tensor tapped(Classifier& model, const Tensor& images, const std::string& name) {
  Taps taps{.wanted = [&](const std::string& one) { return one == name; }, .kept = {}};
  model.forward(images, Context{.taps = &taps});
  return taps.kept.at(name);
}

// --- iLLaMA

TEST(ImageLlama, PaperFormNeverLooksAhead) {
  const torch::NoGradGuard no_grad;
  const Tensor x = image(), later = changed_at_the_end(x);
  const auto paper = small("illama", {{"mask", "before"}}), published = small("illama");
  for (const int64_t block : {0, 1}) {
    const std::string name = "blocks." + std::to_string(block);
    const Tensor a = tapped(*paper, x, name), b = tapped(*paper, later, name);
    EXPECT_TRUE(close(a.slice(1, 0, 15), b.slice(1, 0, 15))) << block;  // 16 patches and a class token
    EXPECT_FALSE(close(a.slice(1, 15), b.slice(1, 15))) << block;
    EXPECT_FALSE(
        close(tapped(*published, x, name).slice(1, 0, 15), tapped(*published, later, name).slice(1, 0, 15)));
  }
}

// After the softmax, a later token changes an earlier one's weights only by a common factor.
TEST(ImageLlama, PublishedFormLooksAheadThroughTheDenominatorOnly) {
  const torch::NoGradGuard no_grad;
  const Tensor x = image();
  const auto published = small("illama"), paper = small("illama", {{"mask", "before"}});
  const auto weights = [](Classifier& model, const Tensor& images) {
    return tapped(model, images, "blocks.0.attention");
  };
  const Tensor a = weights(*published, x), b = weights(*published, changed_at_the_end(x));
  const auto before_the_end = [](const Tensor& w) { return w.slice(2, 0, 15); };
  EXPECT_FALSE(close(before_the_end(a), before_the_end(b)));
  EXPECT_TRUE(close(before_the_end(a / a.sum(-1, true)), before_the_end(b / b.sum(-1, true))));
  EXPECT_TRUE(close(a / a.sum(-1, true), weights(*paper, x)));
  EXPECT_LE(a.sum(-1).max().item<double>(), 1 + 1e-12);
}

TEST(ImageLlama, AClassTokenInFrontSeesNothingUnlessTheMaskIsModified) {
  const torch::NoGradGuard no_grad;
  const auto embeds_alike = [](const char* mask) {
    const auto model = small("illama", {{"mask", mask}, {"class_token", "first"}});
    return close(model->backbone->embed(image()), model->backbone->embed(changed_at_the_end(image())));
  };
  EXPECT_TRUE(embeds_alike("before"));  // the paper's attention collapse
  EXPECT_FALSE(embeds_alike("modified"));
  EXPECT_FALSE(embeds_alike("none"));
  // The modified mask shows the patches nothing more.
  const auto model = small("illama", {{"mask", "modified"}, {"class_token", "first"}});
  const Tensor weights = tapped(*model, image(), "blocks.1.attention");
  EXPECT_GT(weights.select(2, 0).min().item<double>(), 0);
  EXPECT_EQ(weights.slice(2, 1).triu(2).abs().max().item<double>(), 0);
}

TEST(ImageLlama, SoftMaskGoesFromBothDirectionsToCausal) {
  const torch::NoGradGuard no_grad;
  const auto two_way = small("illama", {{"mask", "none"}});
  for (const char* mask : {"after", "before"}) {
    const auto soft = small("illama", {{"mask", mask}, {"soft_mask", 1.0}}),
               causal = small("illama", {{"mask", mask}});
    EXPECT_TRUE(close(soft->forward(image()), causal->forward(image())));  // evaluation is always causal
    soft->backbone->train();
    EXPECT_TRUE(close(soft->forward(image()), two_way->forward(image()))) << mask;
    const auto fading = small(
        "illama", {{"mask", mask}, {"soft_mask", 1.0}, {"soft_mask_mode", "soft"}, {"soft_mask_cutoff", 1}});
    fading->backbone->train();
    EXPECT_TRUE(close(fading->forward(image()), two_way->forward(image()))) << mask;
    fading->backbone->before_step({.step = 1, .steps = 12, .steps_per_epoch = 6});
    EXPECT_FALSE(close(fading->forward(image()), two_way->forward(image()))) << mask;
    EXPECT_FALSE(close(fading->forward(image()), causal->forward(image()))) << mask;
    fading->backbone->before_step({.step = 5, .steps = 12, .steps_per_epoch = 6});
    EXPECT_TRUE(close(fading->forward(image()), causal->forward(image()))) << mask;
  }
}

// The roadmap starts at ViT: without all of its steps, iLLaMA is ViT, and so is VisionLLaMA.
TEST(ImageLlama, WithoutItsStepsIsVit) {
  const torch::NoGradGuard no_grad;
  const auto vit = small("vit");
  const auto illama = small("illama", {{"norm", "layer"},
                                       {"mlp", "gelu"},
                                       {"mask", "none"},
                                       {"class_token", "first"},
                                       {"positions", "learned"}});
  const auto visionllama = small(
      "visionllama", {{"mlp", "gelu"}, {"rope", "none"}, {"init_values", 0.0}, {"positions", "learned"}});
  for (const auto& model : {illama, visionllama}) {
    copy_by_name(*vit, *model);
    EXPECT_TRUE(close(model->forward(image()), vit->forward(image())));
    EXPECT_TRUE(close(model->forward(image(24, 8)), vit->forward(image(24, 8))));
  }
}

TEST(ImageLlama, EveryStepOfTheRoadmapChangesSomething) {
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> seen;
  const std::vector<Value::Table> steps = {
      {{"norm", "layer"},
       {"mlp", "gelu"},
       {"mask", "none"},
       {"class_token", "first"},
       {"positions", "learned"}},
      {{"norm", "layer"}, {"mask", "none"}, {"class_token", "first"}, {"positions", "learned"}},
      {{"mask", "none"}, {"class_token", "first"}, {"positions", "learned"}},
      {{"mask", "before"}, {"class_token", "first"}, {"positions", "learned"}},
      {{"mask", "modified"}, {"class_token", "first"}, {"positions", "learned"}},
      {{"mask", "before"}, {"positions", "learned"}},
      {{"mask", "before"}, {"positions", "rope"}},
      {{"mask", "before"}},
      {},
  };
  for (const Value::Table& step : steps) {
    const Tensor scores = small("illama", step)->forward(image());
    for (const Tensor& other : seen) EXPECT_FALSE(close(scores, other));
    seen.push_back(scores);
  }
}

// --- VisionLLaMA

TEST(VisionLlama, AutoScaledPositionsAreThePlainOnesAtTheAnchor) {
  const torch::NoGradGuard no_grad;
  const auto plain = small("visionllama"),
             scaled = small("visionllama", {{"auto_scale", true}, {"rope_anchor", 16.0}});
  EXPECT_TRUE(close(plain->forward(image()), scaled->forward(image())));
  EXPECT_FALSE(close(plain->forward(image(32, 32)), scaled->forward(image(32, 32))));
  const auto halved = small("visionllama", {{"rope_scale", 0.5}});
  EXPECT_TRUE(close(halved->forward(image(32, 32)), scaled->forward(image(32, 32))));
}

TEST(VisionLlama, OptionsAreTakenBackByTheirNeutralValues) {
  const torch::NoGradGuard no_grad;
  const Tensor plain = small("visionllama")->forward(image());
  EXPECT_TRUE(close(
      small("visionllama", {{"rope_ntk_scale", 1.0}, {"rope_ntk_factor", 3.0}})->forward(image()), plain));
  EXPECT_TRUE(close(small("visionllama", {{"rope_grid", "square"}})->forward(image()), plain));
  EXPECT_TRUE(close(small("visionllama", {{"rope_ratio", 0.0}})->forward(image()),
                    small("visionllama", {{"rope", "none"}})->forward(image())));
  for (const Value::Table& option : std::vector<Value::Table>{{{"rope_theta", 100.0}},
                                                              {{"rope", "1d"}},
                                                              {{"rope_ratio", 0.5}},
                                                              {{"rope_shared", false}},
                                                              {{"rope_ntk_scale", 2.0}},
                                                              {{"class_position", 0.0}}})
    EXPECT_FALSE(close(small("visionllama", option)->forward(image()), plain));
}

// --- stages

// Window attention with one window is global attention, positions included.
TEST(Twins, OneWindowIsGlobalAttention) {
  const torch::NoGradGuard no_grad;
  TwinsBlockOptions options{.residual = {.dim = 8, .hidden = 16}, .heads = 2, .window = 4};
  options.rope.rotary = {};
  TwinsBlock local(options);
  options.window = 0;
  TwinsBlock global(options);
  for (TwinsBlock* block : {&local, &global}) {
    block->to(torch::kFloat64);
    for (Tensor& parameter : block->parameters()) parameter.copy_(torch::randn_like(parameter));
  }
  auto from = local.named_parameters(), to = global.named_parameters();
  for (const auto& entry : to) {
    if (from.contains(entry.key())) entry.value().copy_(from[entry.key()]);
  }
  for (const char* kind : {"weight", "bias"}) {
    const Tensor all = from[std::string("attn.qkv.") + kind];
    to[std::string("attn.q.") + kind].copy_(all.slice(0, 0, 8));
    to[std::string("attn.kv.") + kind].copy_(all.slice(0, 8));
  }
  const Tensor x = torch::randn({2, 4, 4, 8}, torch::kFloat64),
               wide = torch::randn({2, 4, 8, 8}, torch::kFloat64);
  EXPECT_TRUE(close(local.forward(x, {}), global.forward(x, {})));
  EXPECT_FALSE(close(local.forward(wide, {}), global.forward(wide, {})));
  EXPECT_TRUE(close(local.forward(wide, {}).slice(2, 4), global.forward(wide.slice(2, 4), {})));
}

TEST(Twins, WindowsAreIndependent) {
  const torch::NoGradGuard no_grad;
  TwinsBlock block({.residual = {.dim = 8, .hidden = 16}, .heads = 2, .window = 3});
  block.to(torch::kFloat64);
  for (Tensor& parameter : block.parameters()) parameter.copy_(torch::randn_like(parameter));
  const Tensor x = torch::randn({1, 5, 4, 8}, torch::kFloat64);
  Tensor other = x.clone();
  // In the last of 2 x 2 windows, both sides padded. Only one channel changes, since a norm removes a shift
  // of all.
  other[0][4][3][0].add_(1);
  const Tensor same = (block.forward(x, {}) - block.forward(other, {})).abs().amax(-1)[0] == 0;
  EXPECT_TRUE(same.slice(0, 0, 3).all().item<bool>());
  EXPECT_TRUE(same.slice(1, 0, 3).all().item<bool>());
  EXPECT_FALSE(same.slice(0, 3).slice(1, 3).any().item<bool>());
}

// In a single row of two-cell keys, the published positions of the keys are their cells' means.
TEST(VisionLlamaPyramid, KeysStandAtTheMeanOfTheirCells) {
  const torch::NoGradGuard no_grad;
  const auto differs = [](int64_t rows, int64_t cells) {
    TwinsBlockOptions options{
        .residual = {.dim = 8, .hidden = 16}, .heads = 2, .window = 0, .sub_sampling = cells};
    options.rope.rotary = {};
    TwinsBlock published(options);
    options.rope.mean_keys = true;
    TwinsBlock mean(options);
    torch::manual_seed(1);
    const Tensor x = torch::randn({1, rows, 12, 8}, torch::kFloat64);
    for (TwinsBlock* block : {&published, &mean}) {
      block->to(torch::kFloat64);
      torch::manual_seed(2);
      for (Tensor& parameter : block->parameters()) parameter.copy_(torch::randn_like(parameter));
    }
    return !close(published.forward(x, {}), mean.forward(x, {}));
  };
  EXPECT_FALSE(differs(4, 1));
  EXPECT_FALSE(differs(2, 2));
  EXPECT_TRUE(differs(4, 2));
  EXPECT_TRUE(differs(3, 3));
}

TEST(VisionLlamaPyramid, OptionsAreTakenBackByTheirNeutralValues) {
  const torch::NoGradGuard no_grad;
  const char* family = "visionllama_pyramid";
  const auto plain = small(family);
  const Tensor scores = plain->forward(image());
  // At the anchor nothing is scaled, not even in windows.
  const auto scaled = small(family, {{"auto_scale", true}, {"auto_scale_local", true}});
  EXPECT_TRUE(close(scaled->forward(image()), scores));
  EXPECT_FALSE(close(scaled->forward(image(24, 24)), plain->forward(image(24, 24))));
  EXPECT_FALSE(
      close(scaled->forward(image(24, 24)), small(family, {{"auto_scale", true}})->forward(image(24, 24))));
  EXPECT_TRUE(close(small(family, {{"rope_ratio", 0.0}})->forward(image()),
                    small(family, {{"rope", "none"}})->forward(image())));
  for (const Value::Table& option : std::vector<Value::Table>{{{"rope_theta", 100.0}},
                                                              {{"rope", "1d"}},
                                                              {{"rope_shared", false}},
                                                              {{"rope_ntk", 2.0}},
                                                              {{"rope_ntk", 2.0}, {"rope_ntk_keys", true}},
                                                              {{"rope_keys", "mean"}},
                                                              {{"positions", "sincos"}},
                                                              {{"windows", Value::Array{3, 0}}}})
    EXPECT_FALSE(close(small(family, option)->forward(image()), scores));
}

TEST(VisionLlamaPyramid, TakesSizesThatNoStageDivides) {
  const torch::NoGradGuard no_grad;
  for (const char* family : {"visionllama_pyramid", "twins_svt"}) {
    const auto model = small(family);
    const auto maps = model->backbone->features(image(22, 14), {0, 1});  // 11 x 7 tokens, then 5 x 3
    EXPECT_EQ(maps[0].sizes(), (std::vector<int64_t>{2, 8, 11, 7}));
    EXPECT_EQ(maps[1].sizes(), (std::vector<int64_t>{2, 16, 5, 3}));
    EXPECT_TRUE(model->forward(image(22, 14)).isfinite().all().item<bool>());
    EXPECT_ANY_THROW(model->forward(image(16, 2)));
    EXPECT_ANY_THROW(model->forward(image(15, 16)));
  }
}

TEST(VisionLlamaPyramid, LearnedPositionsAreFittedToTheGrid) {
  const auto model = small("visionllama_pyramid", {{"positions", "learned"}});
  EXPECT_EQ(model->backbone->fit("pos_embeds.1", torch::randn({1, 36, 16})).sizes(),
            (std::vector<int64_t>{1, 16, 16}));
  EXPECT_FALSE(model->backbone->fit("pos_embeds.0", torch::randn({1, 36, 16})).defined());
  EXPECT_EQ(model->backbone->no_weight_decay(), (std::vector<std::string>{"pos_embeds.0", "pos_embeds.1"}));
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(model->forward(image(24, 20)).sizes(), (std::vector<int64_t>{2, 3}));
}

// Conditional positions are outside the recomputed blocks: their parameters keep their gradients.
TEST(ConditionalPositions, GetTheirGradientWithCheckpointing) {
  for (const char* family : {"visionllama", "visionllama_pyramid"}) {
    const auto model = small(family, {{"peg", true}});
    model->backbone->train();
    std::vector<Tensor> plain;
    for (const bool checkpointing : {false, true}) {
      model->backbone->set_checkpointing(checkpointing);
      model->backbone->zero_grad();
      model->forward(image()).square().sum().backward();
      if (plain.empty())
        for (const Tensor& parameter : model->backbone->parameters())
          plain.push_back(parameter.grad().clone());
    }
    for (const auto& entry : model->backbone->named_parameters())
      ASSERT_TRUE(entry.value().grad().defined() && entry.value().grad().abs().max().item<double>() > 0)
          << family << " " << entry.key();
    const auto parameters = model->backbone->parameters();
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(close(parameters[i].grad(), plain[i])) << i;
  }
}

// --- scaling of rotary frequencies

constexpr const char* kScalings[] = {"linear", "ntk", "yarn", "llama3"};

// Pyramid stages wide enough for NTK: more than one frequency per axis.
std::shared_ptr<Classifier> scaled(const char* family, const char* scaling, Value::Table extra = {}) {
  if (std::string(family) == "visionllama_pyramid") extra.emplace_back("dims", Value::Array{16, 32});
  extra.emplace_back("rope_scaling", scaling);
  return small(family, std::move(extra));
}

TEST(RopeScaling, MakesRoomForLargerGridsOnly) {
  const torch::NoGradGuard no_grad;
  for (const char* family : {"visionllama", "visionllama_pyramid"})
    for (const char* rope : {"2d", "1d"}) {
      const auto plain = scaled(family, "none", {{"rope", rope}});
      const Tensor unscaled = plain->forward(image(32, 24));
      for (const char* kind : kScalings) {
        const auto model = scaled(family, kind, {{"rope", rope}});
        EXPECT_TRUE(close(model->forward(image()), plain->forward(image()))) << family << rope << kind;
        EXPECT_TRUE(close(model->forward(image(8, 16)), plain->forward(image(8, 16)))) << family << kind;
        EXPECT_FALSE(close(model->forward(image(32, 24)), unscaled)) << family << rope << kind;
      }
    }
}

TEST(RopeScaling, LinearIsAutoScaleFromTheBuiltSize) {
  const torch::NoGradGuard no_grad;
  const auto same = [](const char* family, Value::Table anchored) {
    const auto linear = scaled(family, "linear"), automatic = scaled(family, "none", std::move(anchored));
    EXPECT_TRUE(close(linear->forward(image(32, 32)), automatic->forward(image(32, 32)))) << family;
  };
  same("visionllama", {{"auto_scale", true}, {"rope_anchor", 16.0}});
  same("visionllama_pyramid", {{"auto_scale", true}});  // anchors: rows of the stages' grids
}

// YaRN lengthens the rotated vectors, also inside the kernel and in its gradient.
TEST(RopeScaling, MagnitudesGoThroughTheFusedAttention) {
  for (const char* family : {"visionllama", "visionllama_pyramid"}) {
    const auto model = scaled(family, "yarn");
    const Tensor exact = model->forward(image(32, 32));
    exact.square().sum().backward();
    std::vector<Tensor> gradients;
    for (const Tensor& parameter : model->backbone->parameters())
      gradients.push_back(parameter.grad().clone());
    model->backbone->zero_grad();
    model->backbone->to(torch::kFloat32);
    const Tensor fused = model->forward(image(32, 32).to(torch::kFloat32));
    // A few hundred float32 roundings of numbers around one.
    EXPECT_LT((fused - exact).abs().max().item<double>(), 1e-4 * exact.abs().max().item<double>()) << family;
    fused.square().sum().backward();
    const auto parameters = model->backbone->parameters();
    for (size_t i = 0; i < gradients.size(); ++i)
      EXPECT_LT((parameters[i].grad() - gradients[i]).abs().max().item<double>(),
                1e-3 * (gradients[i].abs().max().item<double>() + 1e-3))
          << family << i;
  }
}

// MAE's linear probing: the head reads the features after a batch norm with statistics of its own.
TEST(HeadBatchNorm, StandsBetweenFeaturesAndHead) {
  for (const char* family : {"visionllama", "darl"}) {
    const auto model = small(family, {{"head_batch_norm", true}});
    const auto buffers = model->backbone->named_buffers();
    ASSERT_NE(buffers.find("head_norm.running_mean"), nullptr) << family;
    ASSERT_NE(buffers.find("head_norm.running_var"), nullptr) << family;
    const auto width = model->backbone->embed_width();
    const torch::Tensor mean = torch::randn({width}, torch::kFloat64),
                        variance = torch::rand({width}, torch::kFloat64) + 0.5;
    torch::Tensor(buffers["head_norm.running_mean"]).copy_(mean);
    torch::Tensor(buffers["head_norm.running_var"]).copy_(variance);
    model->backbone->eval();
    const torch::NoGradGuard no_grad;
    const auto parameters = model->backbone->named_parameters();
    const torch::Tensor read = (model->backbone->embed(image(), {}) - mean) / (variance + 1e-6).sqrt();
    EXPECT_TRUE(close(model->forward(image()),
                      torch::linear(read, parameters["head.weight"], parameters["head.bias"])))
        << family;
    model->reset_head(7);
    EXPECT_TRUE(
        torch::equal(model->backbone->named_buffers()["head_norm.running_mean"], torch::zeros({width})))
        << family;
    model->reset_head(0);
    EXPECT_EQ(model->backbone->named_buffers().find("head_norm.running_mean"), nullptr) << family;
  }
}

TEST(LlamaSettings, ErrorsNameTheKey) {
  const auto message = [](const char* family, Value::Table extra) -> std::string {
    try {
      small(family, std::move(extra));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message("visionllama", {{"rope_ratio", 0.3}}).find("multiple of 4"), std::string::npos);
  EXPECT_NE(message("visionllama", {{"rope_scaling", "longer"}}).find("yarn"), std::string::npos);
  EXPECT_NE(message("visionllama", {{"rope_scaling", "dynamic"}}).find("ntk"), std::string::npos);
  EXPECT_NE(
      message("visionllama", {{"rope_scaling", "ntk"}, {"auto_scale", true}}).find("auto_scale = false"),
      std::string::npos);
  EXPECT_NE(message("visionllama_pyramid", {{"rope_scaling", "ntk"}}).find("more than 4 channels"),
            std::string::npos);
  EXPECT_NE(message("visionllama", {{"mlp", "swigl"}}).find("swiglu"), std::string::npos);
  EXPECT_NE(message("visionllama_pyramid", {{"dims", Value::Array{8}}}).find("one entry per stage"),
            std::string::npos);
  EXPECT_NE(
      message("visionllama_pyramid", {{"rope_anchor", Value::Array{14.0, 7.0, 3.0}}}).find("rope_anchor"),
      std::string::npos);
  EXPECT_NE(message("twins_svt", {{"image_size", 2}}).find("at least"), std::string::npos);
  EXPECT_NE(message("illama", {{"soft_mask", 1.5}}).find("soft_mask"), std::string::npos);
}

// The numbers that the papers print, in units of 10^9.
TEST(Macs, OfTheLlamasAreThoseOfThePapers) {
  const auto billions = [](const char* name) {
    const ModelSpec spec = resolve_model(name);
    const int64_t side = spec.settings.find("image_size")->as_int();
    return static_cast<double>(meta_classifier(spec)->macs(side, side)) * 1e-9;
  };
  EXPECT_NEAR(billions("illama_tiny_patch16_224"), 1.3, 0.05);
  EXPECT_NEAR(billions("illama_small_patch16_224"), 4.6, 0.05);
  EXPECT_NEAR(billions("illama_base_patch16_224"), 17.6, 0.05);
  EXPECT_NEAR(billions("illama_base_patch16_384"), 55.5, 0.05);
  EXPECT_NEAR(billions("illama_large_patch16_224"), 62.8, 0.05);
  EXPECT_NEAR(billions("twins_svt_small"), 2.9, 0.05);
  EXPECT_NEAR(billions("twins_svt_base"), 8.6, 0.05);
  EXPECT_NEAR(billions("twins_svt_large"), 15.1, 0.05);
}

}  // namespace
}  // namespace tessera::models::llama_test
