// Properties of the options of Vision-LSTM.
#include "models/backbones/vil/backbone.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/backbones/models_testing.h"

namespace tessera::models::vil_test {
namespace {

using torch::Tensor;

ModelSpec small(const char* family, Value::Table entries) {
  Value all(Value::Table{{"dim", 16}, {"depth", 2}, {"patch_size", 4}, {"image_size", 16}, {"classes", 3}});
  merge(all, Value(std::move(entries)));
  return resolve_model(family, all);
}

std::shared_ptr<Classifier> lively(const ModelSpec& spec) { return lively(spec, 0.1); }

Tensor picture(int64_t height = 16, int64_t width = 16) {
  torch::manual_seed(3);
  return torch::randn({2, 3, height, width}, torch::kFloat64);
}

void copy_weights(Classifier& from, Classifier& to) {
  const torch::NoGradGuard no_grad;
  auto targets = to.backbone->named_parameters();
  for (const auto& entry : from.backbone->named_parameters())
    if (Tensor* target = targets.find(entry.key())) target->copy_(entry.value());
}

// Returns the tokens after the last block and its norm, [batch, tokens, dim].
Tensor tokens_of(const Classifier& model, const Tensor& images) {
  auto& encoder = dynamic_cast<TokenEncoder&>(*model.backbone);
  return encoder.encode(encoder.tokenise(images)).tokens;
}

int64_t exact_macs(const ModelSpec& spec, int64_t side) {
  return meta_classifier(spec)->exact_macs(side, side);
}

TEST(VilOptions, AllOfThemRunAndLearnEverywhere) {
  std::vector<Value::Table> cases;
  for (const char* directions : {"uni", "bi", "quad", "oct"})
    for (const char* traversal : {"alternating", "parallel", "in_layer"})
      if (std::string(directions) != "uni" || std::string(traversal) != "parallel")
        cases.push_back({{"directions", directions}, {"traversal", traversal}});
  for (const char* conv : {"2d", "conv1d", "causal1d", "none"})
    cases.push_back({{"conv_kind", conv}, {"conv_kernel", 3}});
  for (const char* pooling : {"bilateral_flatten", "bilateral_avg", "mean", "center_mean", "middle",
                              "cls_first", "cls_last", "cls_bilateral", "cls_middle", "cls_middle_bilateral"})
    // If the last traversal runs backwards, a class token at the end comes first in it and sees nothing.
    cases.push_back(
        {{"pooling", pooling}, {"directions", std::string(pooling) == "cls_last" ? "uni" : "quad"}});
  for (const char* off : {"positions", "skip", "norm_bias", "proj_bias", "conv_bias", "legacy_norm"})
    cases.push_back({{off, false}});
  cases.push_back({{"norm", "rms"}});
  cases.push_back({{"norm_eps", "training"}});
  cases.push_back({{"cell", "paper"}});
  cases.push_back({{"inner_multiple", 24}});
  cases.push_back({{"share_conv", false}});
  cases.push_back({{"value_conv", true}, {"pooling", "cls_bilateral"}});
  cases.push_back({{"share_conv", false}, {"value_conv", true}, {"conv_kind", "causal1d"}});
  cases.push_back({{"share_directions", true}, {"directions", "quad"}, {"traversal", "in_layer"}});
  cases.push_back({{"init_values", 0.1}});
  for (const char* family : {"vil", "vil1"})
    for (const Value::Table& entries : cases) {
      const ModelSpec spec = small(family, entries);
      std::string what = family;
      for (const auto& [key, value] : entries)
        what += " " + key + (value.is_string() ? "=" + value.as_string() : "");
      const auto model = lively(spec);
      const Tensor y = model->forward(picture(16, 24));
      EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, 3})) << what;
      EXPECT_TRUE(y.isfinite().all().item<bool>()) << what;
      EXPECT_EQ(model->backbone->embed(picture()).size(1), model->backbone->embed_width()) << what;
      EXPECT_EQ(model->backbone->features(picture(16, 24), {1})[0].sizes(),
                (std::vector<int64_t>{2, 16, 4, 6}))
          << what;
      y.square().sum().backward();
      for (const auto& entry : model->backbone->named_parameters()) {
        const Tensor gradient = entry.value().grad();
        EXPECT_TRUE(gradient.defined() && gradient.isfinite().all().item<bool>() &&
                    gradient.abs().max().item<double>() > 0)
            << what << ": " << entry.key();
      }
      EXPECT_GT(exact_macs(spec, 24), exact_macs(spec, 16)) << what;
    }
}

// In one direction, and without a lookahead, a token depends only on those before it.
TEST(VilOptions, OneDirectionIsCausal) {
  const Tensor x = picture();
  Tensor changed = x.clone();  // from the third row on: tokens 8 to 15
  changed.slice(2, 8).add_(1);
  for (const char* family : {"vil", "vil1"})
    for (const char* conv : {"causal1d", "none", "conv1d", "2d"}) {
      const auto model =
          lively(small(family, {{"directions", "uni"}, {"conv_kind", conv}, {"conv_kernel", 3}}));
      const Tensor before = tokens_of(*model, x).slice(1, 0, 8),
                   after = tokens_of(*model, changed).slice(1, 0, 8);
      const bool looks_ahead = std::string(conv) == "conv1d" || std::string(conv) == "2d";
      EXPECT_EQ((before - after).abs().max().item<double>() > 1e-12, looks_ahead) << family << " " << conv;
      EXPECT_FALSE(torch::allclose(tokens_of(*model, x), tokens_of(*model, changed)));
    }
}

TEST(VilOptions, ReadOutsAreWhatTheySay) {
  const auto source = lively(small("vil", {{"legacy_norm", false}}));
  const Tensor x = picture(16, 20), tokens = tokens_of(*source, x);  // 4 rows of 5
  const auto read = [&](const char* pooling) {
    const auto model = lively(small("vil", {{"pooling", pooling}, {"legacy_norm", false}, {"classes", 0}}));
    copy_weights(*source, *model);
    return model->forward(x);
  };
  const Tensor first = tokens.select(1, 0), last = tokens.select(1, 19);
  EXPECT_TRUE(torch::allclose(read("bilateral_flatten"), torch::cat({first, last}, 1)));
  EXPECT_TRUE(torch::allclose(read("bilateral_avg"), (first + last) / 2));
  EXPECT_TRUE(torch::allclose(read("mean"), tokens.mean(1)));
  EXPECT_TRUE(torch::allclose(read("middle"), tokens.select(1, 10)));
  // Rows 1 and 2 of 4, column 2 of 5.
  EXPECT_TRUE(torch::allclose(read("center_mean"), (tokens.select(1, 7) + tokens.select(1, 12)) / 2));
}

// Class tokens are first, in the middle and last; a reversed traversal does not move them.
TEST(VilOptions, ClassTokensStandWhereTheirNamesSay) {
  VilConfig config;
  const auto places = [&](const char* pooling) {
    config.pooling = parse_enum<VilPooling>(pooling, "pooling");
    return config.places(4, 4).others();
  };
  EXPECT_EQ(places("cls_first"), (std::vector<int64_t>{0}));
  EXPECT_EQ(places("cls_last"), (std::vector<int64_t>{16}));
  EXPECT_EQ(places("cls_bilateral"), (std::vector<int64_t>{0, 17}));
  EXPECT_EQ(places("cls_middle"), (std::vector<int64_t>{8}));
  EXPECT_EQ(places("cls_middle_bilateral"), (std::vector<int64_t>{0, 9, 18}));
  EXPECT_TRUE(places("mean").empty());
  // In a causal traversal, a token at the front sees nothing of the image, one at the end does.
  for (const auto& [pooling, sees] :
       {std::pair{"cls_first", false}, {"cls_last", true}, {"cls_middle", true}}) {
    const auto model = lively(small("vil", {{"directions", "uni"}, {"pooling", pooling}}));
    Tensor changed = picture();
    changed.slice(2, 0, 8).add_(1);
    EXPECT_EQ(!torch::allclose(model->backbone->embed(picture()), model->backbone->embed(changed)), sees)
        << pooling;
  }
}

// Equation 15: both blocks read the same tokens, and their outputs are added.
TEST(VilOptions, ParallelTraversalAddsBothDirections) {
  const auto change = [&](Classifier& model) {  // the addend of the only group
    Taps with, without;
    model.backbone->embed(picture(), {.taps = &with});
    const Tensor after = with.kept.at("blocks.0");
    const torch::NoGradGuard no_grad;
    for (const auto& entry : model.backbone->named_parameters())
      if (entry.key().find("proj_down") != std::string::npos) entry.value().zero_();
    model.backbone->embed(picture(), {.taps = &without});
    return after - without.kept.at("blocks.0");
  };
  const auto parallel = lively(small("vil", {{"depth", 1}, {"traversal", "parallel"}}));
  const auto one = [&](const char* silent) {
    const auto model = lively(small("vil", {{"depth", 1}}));
    copy_weights(*parallel, *model);
    const torch::NoGradGuard no_grad;
    for (const auto& entry : model->backbone->named_parameters())
      if (entry.key().find(std::string(silent) + ".layer.proj_down") != std::string::npos)
        entry.value().zero_();
    return model;
  };
  const Tensor down = change(*one("bot_right")), up = change(*one("top_left"));
  EXPECT_GT(up.abs().max().item<double>(), 1e-3);
  EXPECT_TRUE(torch::allclose(change(*parallel), down + up));
}

// One set of weights for all directions equals one set per direction with the same numbers.
TEST(VilOptions, SharedDirectionsAreEqualOnes) {
  for (const char* family : {"vil", "vil1"}) {
    Value::Table entries{{"directions", "quad"}, {"traversal", "in_layer"}, {"norm_bias", false}};
    const auto apart = lively(small(family, entries));
    entries.emplace_back("share_directions", true);
    const auto shared = lively(small(family, entries));
    EXPECT_LT(count_parameters(*shared->backbone), count_parameters(*apart->backbone));
    const torch::NoGradGuard no_grad;
    auto first = shared->backbone->named_parameters();
    for (const auto& entry : apart->backbone->named_parameters()) {
      std::string name = entry.key();
      for (const std::string suffix : {"_rev", "_du", "_ud"})
        if (const size_t at = name.find(suffix); at != std::string::npos) name.erase(at, suffix.size());
      entry.value().copy_(first[name]);
    }
    EXPECT_TRUE(torch::allclose(shared->forward(picture()), apart->forward(picture()))) << family;
  }
}

TEST(VilOptions, ConvolutionsOfTheirOwnMayBeTheSame) {
  for (const char* kind : {"2d", "causal1d"}) {
    const auto own = lively(small("vil", {{"conv_kind", kind}, {"share_conv", false}, {"value_conv", true}}));
    const auto shared = lively(small("vil", {{"conv_kind", kind}, {"value_conv", true}}));
    copy_weights(*own, *shared);
    const Tensor x = picture(), before = own->forward(x);
    EXPECT_FALSE(torch::allclose(before, shared->forward(x))) << kind;
    const torch::NoGradGuard no_grad;
    auto parameters = own->backbone->named_parameters();
    for (const auto& entry : own->backbone->named_parameters())
      for (const char* which : {".conv_k.", ".conv_v."})
        if (const size_t at = entry.key().find(which); at != std::string::npos) {
          std::string name = entry.key();
          entry.value().copy_(parameters[name.replace(at, 8, ".conv.")]);
        }
    EXPECT_TRUE(torch::allclose(own->forward(x), shared->forward(x))) << kind;
  }
}

// If v's convolution is zero, its layer adds nothing; a v without convolution is unaffected.
TEST(VilOptions, ValuesReadTheirConvolution) {
  for (const bool reads : {false, true}) {
    const auto model = lively(small("vil", {{"depth", 1},
                                            {"share_conv", false},
                                            {"value_conv", reads},
                                            {"skip", false},
                                            {"norm_bias", false},
                                            {"proj_bias", false}}));
    const torch::NoGradGuard no_grad;
    for (const auto& entry : model->backbone->named_parameters())
      if (entry.key().find(".conv_v.") != std::string::npos) entry.value().zero_();
    const Tensor before = model->backbone->features(picture(), {0})[0];
    for (const auto& entry : model->backbone->named_parameters())
      if (entry.key().find("proj_down") != std::string::npos) entry.value().zero_();
    EXPECT_EQ(torch::equal(model->backbone->features(picture(), {0})[0], before), reads);
  }
}

TEST(VilOptions, LayerScaleMultipliesWhatALayerAdds) {
  const auto scaled = lively(small("vil", {{"init_values", 0.25}})), plain = lively(small("vil", {}));
  EXPECT_NEAR(build_classifier(small("vil", {{"init_values", 0.25}}), 1)
                  ->backbone->named_parameters()["blocks.0.rowwise_from_bot_right.layer.layerscale.gamma"]
                  .mean()
                  .item<double>(),
              0.25, 1e-7);
  copy_weights(*scaled, *plain);
  const torch::NoGradGuard no_grad;
  auto parameters = scaled->backbone->named_parameters();
  for (const auto& entry : plain->backbone->named_parameters())
    if (const size_t at = entry.key().find("proj_down"); at != std::string::npos) {
      const Tensor gamma = parameters[entry.key().substr(0, at) + "layerscale.gamma"];
      entry.value().mul_(entry.value().dim() == 2 ? gamma.unsqueeze(1) : gamma);
    }
  EXPECT_TRUE(torch::allclose(scaled->forward(picture()), plain->forward(picture())));
}

TEST(VilOptions, BlocksAreNamedAfterTheirDirections) {
  const auto has = [](const ModelSpec& spec, const char* name) {
    return meta_classifier(spec)->backbone->named_parameters().contains(name);
  };
  const ModelSpec quad = small("vil", {{"directions", "quad"}});
  EXPECT_TRUE(has(quad, "blocks.0.rowwise_from_bot_right.norm.weight"));
  EXPECT_TRUE(has(quad, "blocks.1.colwise_from_top_left.norm.weight"));
  const ModelSpec oct = small("vil", {{"directions", "oct"}, {"traversal", "parallel"}});
  EXPECT_TRUE(has(oct, "blocks.1.colwise_from_bot_left.norm.weight"));
  EXPECT_TRUE(has(small("vil", {{"directions", "uni"}}), "blocks.0.rowwise_from_top_left_again.norm.weight"));
  EXPECT_TRUE(has(small("vil1", {}), "blocks.1.layer.conv1d.conv.weight"));
  const ModelSpec inside = small("vil1", {{"directions", "quad"}, {"traversal", "in_layer"}});
  EXPECT_TRUE(has(inside, "blocks.1.layer.mlstm_cell_ud.igate.weight"));
}

TEST(VilOptions, WrongCombinationsAreRefused) {
  for (const Value::Table& wrong :
       {Value::Table{{"directions", "both"}}, Value::Table{{"directions", "uni"}, {"traversal", "parallel"}},
        Value::Table{{"directions", "quad"}, {"conv_grid", "built"}},
        Value::Table{{"conv_kind", "conv1d"}, {"conv_kernel", 4}}, Value::Table{{"cell", "gru"}},
        Value::Table{{"mode", "features"}, {"pooling", "mean"}}, Value::Table{{"inner_multiple", 0}},
        Value::Table{{"share_directions", true}}, Value::Table{{"init_values", -1.0}},
        Value::Table{{"conv_kind", "none"}, {"share_conv", false}}})
    EXPECT_THROW(small("vil", wrong), Error);
}

// The paper counts the state once for all heads and per chunk; more products are computed.
TEST(Vil, ExactMultiplyAddsAreTheChunkwiseProducts) {
  const ModelSpec spec = resolve_model("vil_tiny_patch16_224");
  const int64_t cells = 24, heads = 4, d = 96;
  const auto paper = static_cast<int64_t>(196.0 * (2 * 25.5 * 384 + 2 / 49.0 * 384 * 384));
  // Four chunks of 49; three of them read a state, three write one.
  const int64_t exact = heads * (4 * 49 * 50 * d + 6 * 49 * (d * d + d));
  EXPECT_EQ(exact_macs(spec, 224) - meta_classifier(spec)->macs(224, 224), cells * (exact - paper));
}

}  // namespace
}  // namespace tessera::models::vil_test
