// Causal trunks that predict patch after patch, in every order, at once and with a cache.
#include "models/backbones/next_patch.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <numeric>

#include "core/error.h"
#include "models/backbones/models_testing.h"
#include "models/base/tokeniser.h"
#include "nn/patch_embed.h"

namespace tessera::models::next_patch_test {
namespace {

using torch::Tensor;

constexpr int64_t kPatches = 16, kPixels = 48;

struct Case {
  const char* family;
  Value::Table settings;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"darl", {}},
      {"darl", {{"positions", "learned"}}},
      {"darl", {{"positions", "rope_1d"}, {"causal", true}}},
      {"darl", {{"two_stream", true}}},
      {"darl", {{"two_stream", true}, {"start_token", false}}},
      {"darl", {{"two_stream", true}, {"positions", "absolute"}}},
      {"illama", {{"mask", "before"}}},
      {"illama", {{"mask", "before"}, {"class_token", "first"}}},
      {"vil", {{"directions", "uni"}, {"conv_kind", "causal1d"}}},
      {"vil1", {{"directions", "uni"}, {"conv_kind", "none"}, {"pooling", "cls_bilateral"}}},
  };
  return all;
}

std::vector<std::vector<int64_t>> orders() {
  std::vector<std::vector<int64_t>> all;
  for (const char* kind : {"raster", "nested", "round_robin"}) {
    const Tensor order = patch_order(kind, 4, 4, 2);
    all.emplace_back(order.data_ptr<int64_t>(), order.data_ptr<int64_t>() + kPatches);
  }
  all.push_back(RandomStream(7, "order").permutation(kPatches));
  return all;
}

struct Model {
  ModelSpec spec;
  std::shared_ptr<Backbone> trunk;
};

Model build(const Case& one) {
  Value all(Value::Table{
      {"dim", 16}, {"heads", 2}, {"depth", 2}, {"patch_size", 4}, {"image_size", 16}, {"classes", 0}});
  merge(all, Value(one.settings));
  const ModelSpec spec = resolve_model(one.family, all);
  return {spec, lively(spec, 0.3)->backbone};
}

std::shared_ptr<PatchDecoder> decoder_for(const PatchPredictor& predictor, PatchDecoderKind kind,
                                          int64_t depth, bool denoises, bool gamma = false,
                                          int64_t outputs = kPixels) {
  auto decoder = std::make_shared<PatchDecoder>(PatchDecoderOptions{.kind = kind,
                                                                    .width = predictor.width(),
                                                                    .pixels = outputs,
                                                                    .depth = depth,
                                                                    .heads = 2,
                                                                    .denoises = denoises,
                                                                    .gamma = gamma,
                                                                    .learns_start = !predictor.has_front()});
  decoder->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  torch::manual_seed(4);
  for (Tensor& parameter : decoder->parameters()) parameter.add_(torch::randn_like(parameter), 0.3);
  return decoder;
}

TEST(NextPatch, APredictionHasNoGradientFromItsPatchAndLaterOnes) {
  for (const Case& one : cases())
    for (const std::vector<int64_t>& order : orders()) {
      const Model model = build(one);
      PatchPredictor predictor(model.trunk, model.spec, order, "this test");
      const auto decoder = decoder_for(predictor, PatchDecoderKind::mlp, 1, false);
      torch::manual_seed(3);
      const Tensor images = torch::randn({1, 3, 16, 16}, torch::kFloat64).requires_grad_();
      const Tensor predicted = decoder->forward(predictor.before_each_patch(images, decoder->start()));
      ASSERT_EQ(predicted.sizes(), (std::vector<int64_t>{1, kPatches, kPixels}));
      for (int64_t t = 0; t < kPatches; ++t) {
        const Tensor weights = torch::randn({kPixels}, torch::kFloat64);
        const Tensor gradient =
            torch::autograd::grad({(predicted[0][t] * weights).sum()}, {images}, {}, true, false, true)[0];
        const Tensor of_patch = gradient.defined() ? predictor.in_order(gradient).abs().amax({0, 2})
                                                   : torch::zeros({kPatches}, torch::kFloat64);
        EXPECT_EQ(of_patch.slice(0, t).max().item<double>(), 0) << one.family << " patch " << t;
        if (t == 0) continue;
        EXPECT_GT(of_patch.slice(0, 0, t).min().item<double>(), 0) << one.family << " patch " << t;
      }
    }
}

// Runs the trunk again on the image so far for each patch.
Tensor draw_without_cache(PatchPredictor& predictor, PatchDecoder& decoder, const Tensor& given,
                          int64_t known, const PatchSampling& sampling, const PatchNoise& noise) {
  Tensor pixels = given.clone();
  pixels.slice(1, known).zero_();
  for (int64_t t = known; t < kPatches; ++t) {
    const Tensor z = predictor.before_each_patch(predictor.to_images(pixels), decoder.start());
    pixels.select(1, t).copy_(draw_patch(decoder, z.slice(1, t, t + 1), sampling, t, noise));
  }
  return pixels;
}

TEST(NextPatch, DrawingWithACacheIsDrawingWithout) {
  const torch::NoGradGuard no_grad;
  struct Decoder {
    PatchDecoderKind kind;
    int64_t depth;
    bool denoises, gamma, noise;
  };
  using enum PatchDecoderKind;
  const std::vector<Decoder> decoders = {{linear, 0, false, false, false},
                                         {transformer, 1, true, false, false},
                                         {transformer, 2, true, true, true},
                                         {mlp, 2, true, true, false},
                                         {linear, 0, true, false, true}};
  size_t turn = 0;
  for (const Case& one : cases())
    for (const std::vector<int64_t>& order : orders()) {
      const Model model = build(one);
      PatchPredictor predictor(model.trunk, model.spec, order, "this test");
      const Decoder& how = decoders[turn++ % decoders.size()];
      const auto decoder = decoder_for(predictor, how.kind, how.depth, how.denoises, how.gamma);
      const PatchSampling sampling{
          .gammas = how.denoises ? std::vector<double>{1, 0.7, 0.3, 0.05} : std::vector<double>(),
          .predicts_noise = how.noise};
      torch::manual_seed(6);
      const Tensor draws = torch::randn({kPatches, 4, 2, kPixels}, torch::kFloat64);
      const auto noise = [&](int64_t patch, int64_t step) { return draws[patch][step]; };
      const Tensor given = torch::randn({2, kPatches, kPixels}, torch::kFloat64);
      const int64_t known = turn % 2 == 0 ? 0 : 5;
      const Tensor got = draw_patches(predictor, *decoder, given, known, sampling, noise);
      const Tensor want = draw_without_cache(predictor, *decoder, given, known, sampling, noise);
      EXPECT_TRUE(torch::allclose(got, want, 1e-7, 1e-7))
          << one.family << " " << (got - want).abs().max().item<double>();
      EXPECT_TRUE(torch::equal(got.slice(1, 0, known), given.slice(1, 0, known)));
    }
}

// Images in which a patch's brightness grows with its token.
TEST(NextPatch, DrawingTokensWithACacheIsDrawingWithout) {
  const torch::NoGradGuard no_grad;
  constexpr int64_t kCodes = 6;
  for (const bool two_stream : {false, true})
    for (const std::vector<int64_t>& order : orders()) {
      const Model model =
          build({"darl", {{"codes", kCodes}, {"tokeniser", "somewhere"}, {"two_stream", two_stream}}});
      dynamic_cast<ReadsTokens&>(*model.trunk)
          .set_tokens([](const Tensor& images, int64_t,
                         int64_t) { return nn::patchify(images, 4).select(2, 0).to(torch::kInt64); },
                      "a");
      PatchPredictor predictor(model.trunk, model.spec, order, "this test");
      const auto decoder = decoder_for(predictor, PatchDecoderKind::mlp, 1, false, false, kCodes);
      torch::manual_seed(6);
      const Tensor noise = torch::randn({kPatches, 2, kCodes}, torch::kFloat64);
      const auto choose = [&](int64_t patch, const Tensor& scores) {
        return (scores + noise[patch]).argmax(1);
      };
      const Tensor given = torch::randint(kCodes, {2, kPatches}, torch::kInt64);
      const int64_t known = two_stream ? 0 : 5;
      const Tensor got = draw_tokens(predictor, *decoder, given, known, choose, {});
      Tensor want = given.clone();
      for (int64_t t = known; t < kPatches; ++t) {
        const Tensor images = predictor.to_images(
            want.to(torch::kFloat64).unsqueeze(-1).expand({2, kPatches, kPixels}).contiguous());
        const Tensor z = predictor.before_each_patch(images, decoder->start());
        want.select(1, t).copy_(choose(t, decoder->forward(z).select(1, t)));
      }
      EXPECT_TRUE(torch::equal(got, want)) << two_stream;
      EXPECT_TRUE(torch::equal(got.slice(1, 0, known), given.slice(1, 0, known)));
      EXPECT_TRUE(torch::equal(predictor.arranged(predictor.in_raster(got)), got));
    }
}

TEST(NextPatch, PatchesInOrderBecomeTheImageAgain) {
  const Model model = build(cases()[0]);
  const Tensor images = torch::randn({2, 3, 16, 16});
  for (const std::vector<int64_t>& order : orders()) {
    const PatchPredictor predictor(model.trunk, model.spec, order, "this test");
    EXPECT_TRUE(torch::equal(predictor.to_images(predictor.in_order(images)), images));
  }
}

TEST(NextPatch, ModelsThatSeePatchesToComeAreRefused) {
  const auto refusal = [](const Case& one) -> std::string {
    const Model model = build(one);
    std::vector<int64_t> raster(kPatches);
    std::iota(raster.begin(), raster.end(), int64_t{0});
    try {
      PatchPredictor predictor(model.trunk, model.spec, raster, "task darl");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage);
      return error.what();
    }
    return "no error";
  };
  const std::string start = "task darl predicts each patch from those before it: ";
  EXPECT_EQ(refusal({"illama", {}}),
            start + "model.mask = \"after\" divides by the weights of all tokens, must be \"before\"");
  EXPECT_EQ(refusal({"illama", {{"mask", "before"}, {"soft_mask", 0.5}, {"soft_mask_cutoff", 2}}}),
            start + "model.soft_mask = 0.5 sees tokens to come, must be 0");
  EXPECT_EQ(refusal({"vil", {}}), start + "model.directions = \"bi\" must be \"uni\"");
  EXPECT_EQ(refusal({"vil", {{"directions", "uni"}, {"conv_kind", "none"}, {"stride", 2}}}),
            start + "model.stride = 2 shows a part of the patches to come");
  EXPECT_EQ(refusal({"vil", {{"directions", "uni"}, {"conv_kind", "none"}, {"pooling", "cls_middle"}}}),
            start + "model.pooling = \"cls_middle\" puts a token among the patches");
  EXPECT_TRUE(
      refusal({"vit", {}})
          .starts_with("task darl needs a model that encodes token after token; vit cannot; these can:"));
}

}  // namespace
}  // namespace tessera::models::next_patch_test
