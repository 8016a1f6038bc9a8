// Properties of selecting tokens, for every family that supports it.
#include "models/base/encoder.h"

#include <gtest/gtest.h>

#include "core/core_testing.h"
#include "models/backbones/darl.h"
#include "models/backbones/models_testing.h"
#include "models/base/capability.h"

namespace tessera::models::encoder_test {
namespace {

using torch::Tensor;

constexpr int64_t kBatch = 3, kPatches = 24;  // 4 x 6, of models built for 4 x 4

struct Form {
  const char* family;
  Value::Table settings;
  // True if the order of the patches matters: a token sees only earlier tokens, or its neighbours in the
  // sequence.
  bool ordered = false;
  std::string name() const {
    std::string all = family;
    for (const auto& [key, value] : settings)
      all += " " + key + (value.is_string() ? "=" + value.as_string() : "");
    return all;
  }
};

const std::vector<Form>& attention_forms() {
  static const std::vector<Form> forms = {
      {"vit", {}},
      {"vit", {{"distilled", true}}},
      {"vit", {{"positions", "relative"}, {"global_pool", "avg"}, {"reg_tokens", 2}}},
      {"vit", {{"positions", "alibi"}, {"class_token", false}, {"global_pool", "avg"}}},
      {"visionllama", {}},
      {"visionllama", {{"rope_shared", false}, {"positions", "learned"}, {"class_token", false}}},
      {"illama", {{"mask", "none"}}},
      {"illama", {{"mask", "after"}}, true},
      {"illama", {{"mask", "before"}}, true},
      {"illama", {{"mask", "modified"}, {"class_token", "first"}}, true},
      {"darl", {}},
      {"darl", {{"positions", "learned"}, {"causal", true}}, true},
  };
  return forms;
}

std::vector<Form> all_forms() {
  std::vector<Form> forms = attention_forms();
  for (const char* pooling : {"bilateral_flatten", "mean", "cls_middle_bilateral"})
    forms.push_back({"vil", {{"conv_kind", "conv1d"}, {"pooling", pooling}}, true});
  forms.push_back({"vil1", {{"conv_kind", "none"}, {"directions", "uni"}}, true});
  forms.push_back({"vil1", {{"traversal", "in_layer"}}, true});
  return forms;
}

std::shared_ptr<Classifier> build(const Form& form, Value::Table extra = {}) {
  Value all(Value::Table{
      {"dim", 16}, {"heads", 2}, {"depth", 2}, {"patch_size", 4}, {"image_size", 16}, {"classes", 3}});
  merge(all, Value(form.settings));
  merge(all, Value(std::move(extra)));
  return lively(resolve_model(form.family, all), 0.3);
}

TokenEncoder& encoder_of(const Classifier& model) { return dynamic_cast<TokenEncoder&>(*model.backbone); }

Tensor images() {
  torch::manual_seed(4);
  return torch::randn({kBatch, 3, 16, 24}, torch::kFloat64);
}

// Draws patches for each sample, [batch, count], ascending or shuffled.
Tensor chosen(int64_t count, bool ascending) {
  torch::manual_seed(7);
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < kBatch; ++i) {
    const Tensor some = torch::randperm(kPatches, torch::kInt64).slice(0, 0, count);
    rows.push_back(ascending ? std::get<0>(some.sort()) : some);
  }
  return torch::stack(rows);
}

bool close(const Tensor& a, const Tensor& b) { return torch::allclose(a, b, 1e-9, 1e-11); }

TEST(Encoder, EncodesAndPoolsWhatEmbedSees) {
  const torch::NoGradGuard no_grad;
  for (const Form& form : all_forms()) {
    const auto model = build(form);
    TokenEncoder& encoder = encoder_of(*model);
    const Tokens tokens = encoder.tokenise(images());
    EXPECT_EQ(tokens.x.sizes(), (std::vector<int64_t>{kBatch, tokens.count(), encoder.token_width()}));
    const Encoded encoded = encoder.encode(tokens, {}, {1, 0});
    EXPECT_EQ(encoded.tokens.sizes(), tokens.x.sizes()) << form.name();
    EXPECT_TRUE(torch::equal(encoder.pool(encoded), model->backbone->embed(images()))) << form.name();
    const auto maps = model->backbone->features(images(), {1, 0});
    ASSERT_EQ(encoded.maps.size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(torch::equal(encoded.maps[i], maps[i])) << form.name();
  }
}

TEST(Encoder, KeepingAllPatchesInTheirOrderChangesNothing) {
  const torch::NoGradGuard no_grad;
  for (const Form& form : all_forms()) {
    const auto model = build(form);
    TokenEncoder& encoder = encoder_of(*model);
    const Tokens tokens = encoder.tokenise(images());
    const Tokens kept = encoder.keep(tokens, torch::arange(kPatches).expand({kBatch, -1}));
    EXPECT_TRUE(torch::equal(kept.x, tokens.x));
    EXPECT_TRUE(close(encoder.encode(kept).tokens, encoder.encode(tokens).tokens)) << form.name();
  }
}

TEST(Encoder, WithoutAnOrderTokensAreASet) {
  const torch::NoGradGuard no_grad;
  const Tensor order = chosen(kPatches, /*ascending=*/false);
  for (const Form& form : attention_forms()) {
    const auto model = build(form);
    TokenEncoder& encoder = encoder_of(*model);
    const Tokens tokens = encoder.tokenise(images());
    const Encoded whole = encoder.encode(tokens), moved = encoder.encode(encoder.keep(tokens, order));
    const Tensor wanted = rows_at_places(whole.patches_of(whole.tokens), order);
    EXPECT_EQ(close(moved.patches_of(moved.tokens), wanted), !form.ordered) << form.name();
  }
}

// Returns a bias so low that the other keys weigh nothing, [batch, 1, 1, tokens]. It is not -inf, which fails
// for a causal query that sees no key at all.
Tensor hiding_all_but(const Tokens& tokens, const Tensor& index) {
  Tensor bias = torch::full({kBatch, tokens.count()}, -1e9, torch::kFloat64);
  bias.scatter_(1, tokens.chosen(index), 0);
  return bias.view({kBatch, 1, 1, -1});
}

TEST(Encoder, LeavingPatchesOutIsHidingThem) {
  const torch::NoGradGuard no_grad;
  const Tensor index = chosen(9, /*ascending=*/true);
  for (const Form& form : attention_forms()) {
    const auto model = build(form);
    TokenEncoder& encoder = encoder_of(*model);
    const Tokens tokens = encoder.tokenise(images());
    Tokens masked = tokens;
    const Tensor bias = hiding_all_but(tokens, index);
    masked.extras.bias = tokens.extras.bias.defined() ? tokens.extras.bias + bias : bias;
    const Encoded kept = encoder.encode(encoder.keep(tokens, index));
    const Tensor wanted = rows_at_places(encoder.encode(masked).tokens, tokens.chosen(index));
    EXPECT_TRUE(close(kept.tokens, wanted)) << form.name();
    EXPECT_FALSE(close(kept.tokens, rows_at_places(encoder.encode(tokens).tokens, tokens.chosen(index))))
        << form.name();
  }
}

// Two selections in succession equal the selection that both make.
TEST(Encoder, ChoicesFollowEachOther) {
  const torch::NoGradGuard no_grad;
  const Tensor first = chosen(12, false),
               second =
                   torch::stack({torch::randperm(12), torch::randperm(12), torch::arange(12)}).slice(1, 0, 5);
  for (const Form& form : all_forms()) {
    const auto model = build(form);
    TokenEncoder& encoder = encoder_of(*model);
    const Tokens tokens = encoder.tokenise(images());
    const Tokens twice = encoder.keep(encoder.keep(tokens, first), second),
                 once = encoder.keep(tokens, first.gather(1, second));
    EXPECT_TRUE(torch::equal(twice.kept, once.kept));
    EXPECT_TRUE(close(encoder.encode(twice).tokens, encoder.encode(once).tokens)) << form.name();
  }
}

// Branches see the samples that drop path leaves them: each sample keeps its own places.
TEST(Encoder, DroppedBranchesLeaveEverySampleItsPlaces) {
  const torch::NoGradGuard no_grad;
  const Tensor index = chosen(9, true);
  for (const Form& form : all_forms()) {
    const auto model = build(form, {{"drop_path", 0.5}});
    model->backbone->train();
    TokenEncoder& encoder = encoder_of(*model);
    const Context context{.seed = 1, .step = 2};
    const Tensor all = encoder.encode(encoder.keep(encoder.tokenise(images()), index), context).tokens;
    for (int64_t i = 0; i < kBatch; ++i) {
      const Tokens one =
          encoder.keep(encoder.tokenise(images().slice(0, i, i + 1)), index.slice(0, i, i + 1));
      const Context alone{.seed = 1, .step = 2, .first_sample = i};
      EXPECT_TRUE(close(encoder.encode(one, alone).tokens, all.slice(0, i, i + 1))) << form.name() << i;
    }
  }
}

TEST(Encoder, GradientsReachTheImageThroughWhatWasKept) {
  const Tensor index = chosen(9, false);
  for (const Form& form : all_forms()) {
    const auto model = build(form);
    model->backbone->train();
    TokenEncoder& encoder = encoder_of(*model);
    std::vector<Tensor> found;
    for (const bool checkpointing : {false, true}) {
      model->backbone->set_checkpointing(checkpointing);
      Tensor x = images().requires_grad_();
      encoder.encode(encoder.keep(encoder.tokenise(x), index)).tokens.square().sum().backward();
      found.push_back(x.grad());
    }
    EXPECT_TRUE(close(found[0], found[1])) << form.name();
    const Tensor patches = found[0].unfold(2, 4, 4).unfold(3, 4, 4).abs().amax({1, 4, 5}).flatten(1);
    const Tensor seen = torch::zeros({kBatch, kPatches}, torch::kBool).scatter_(1, index, true);
    EXPECT_TRUE(torch::equal(patches > 0, seen)) << form.name();
  }
}

// Tables of each sample bypass the fused attention's own rotation.
TEST(Encoder, SamplesOwnPlacesAreAsExactInSinglePrecision) {
  const torch::NoGradGuard no_grad;
  for (const Form& form : attention_forms()) {
    const auto model = build(form);
    TokenEncoder& encoder = encoder_of(*model);
    const auto run = [&](torch::ScalarType type) {
      model->backbone->to(type);
      return encoder.encode(encoder.keep(encoder.tokenise(images().to(type)), chosen(9, true))).tokens;
    };
    const Tensor exact = run(torch::kFloat64), rounded = run(torch::kFloat32);
    // A few hundred float32 roundings of numbers around one.
    EXPECT_LT((rounded - exact).abs().max().item<double>(), 1e-4 * exact.abs().max().item<double>())
        << form.name();
  }
}

TEST(Encoder, RefusesWhatItCannotDo) {
  const Tensor index = chosen(9, true);
  const auto keeps = [&](const Form& form) {
    const auto model = build(form);
    return error_of([&] { encoder_of(*model).keep(encoder_of(*model).tokenise(images()), index); });
  };
  EXPECT_EQ(keeps({"visionllama", {{"peg", true}}}),
            "no patch can be left out: model.peg = true reads the neighbours of every patch");
  EXPECT_EQ(keeps({"vil", {}}),
            "no patch can be left out: model.conv_kind = \"2d\" reads the neighbours of every patch");
  EXPECT_EQ(keeps({"vil1", {{"directions", "quad"}}}),
            "no patch can be left out: model.directions = \"quad\" walks along the grid's columns");
  const auto model = build({"vit", {}});
  TokenEncoder& encoder = encoder_of(*model);
  const Tokens tokens = encoder.tokenise(images());
  EXPECT_NE(error_of([&] { encoder.keep(tokens, index + 20); }).find("there are 0 to 23"), std::string::npos);
  EXPECT_NE(error_of([&] { encoder.keep(tokens, index[0]); }).find("must be int64 [3, kept]"),
            std::string::npos);
  EXPECT_NE(error_of([&] { encoder.encode(encoder.keep(tokens, index), {}, {0}); }).find("9 were kept"),
            std::string::npos);
}

TEST(Condition, IsRefusedByBlocksThatTakeNone) {
  const Context context{.condition = torch::zeros({kBatch, 8}, torch::kFloat64)};
  const auto vit = build({"vit", {}});
  const std::string refusal = "a condition [3, 8] was given to a model with blocks that take none";
  EXPECT_EQ(error_of([&] { vit->backbone->embed(images(), context); }), refusal);
  EXPECT_EQ(error_of([&] { encoder_of(*vit).encode(encoder_of(*vit).tokenise(images()), context); }),
            refusal);
  const auto swin = lively(resolve_model("swin", Value(Value::Table{{"dims", Value::Array{8, 16}},
                                                                    {"depths", Value::Array{1, 1}},
                                                                    {"heads", Value::Array{2, 2}},
                                                                    {"image_size", 16}})),
                           0.1);
  EXPECT_EQ(error_of([&] { swin->backbone->embed(images(), context); }), refusal);
}

TEST(Capability, ModelsWithoutItAreToldWhoHasIt) {
  const auto swin = meta_backbone(resolve_model("swin"));
  EXPECT_EQ(error_of([&] { require<TokenEncoder>(*swin, "swin", "task mae"); }),
            "task mae needs a model that encodes tokens that a task has chosen; swin cannot; these can: vit, "
            "vil, vil1, darl, illama, visionllama, eva02, aim, vim, vrwkv, igpt");
  EXPECT_EQ(error_of([&] { require<NextPatch>(*swin, "swin", "task darl"); }),
            "task darl needs a model that predicts each patch from those before it; swin cannot; these can: "
            "darl");
  const auto vit = meta_backbone(resolve_model("vit"));
  EXPECT_EQ(&require<TokenEncoder>(*vit, "vit", "task mae"), dynamic_cast<TokenEncoder*>(vit.get()));
}

}  // namespace
}  // namespace tessera::models::encoder_test
