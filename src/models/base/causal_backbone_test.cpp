// Causal models, one token at a time.
#include "models/base/causal_backbone.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/backbones/models_testing.h"

namespace tessera::models::causal_backbone_test {
namespace {

using torch::Tensor;

std::shared_ptr<Classifier> build(const char* family, Value::Table extra) {
  Value all(Value::Table{
      {"dim", 16}, {"heads", 2}, {"depth", 2}, {"patch_size", 4}, {"image_size", 16}, {"classes", 3}});
  merge(all, Value(std::move(extra)));
  return lively(resolve_model(family, all), 0.3);
}

CausalStep& stepper(const Classifier& model) { return dynamic_cast<CausalStep&>(*model.backbone); }

struct Case {
  const char* family;
  Value::Table settings;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"illama", {{"mask", "before"}}},
      {"illama", {{"mask", "before"}, {"class_token", "first"}, {"positions", "rope"}}},
      {"darl", {{"causal", true}}},
      {"darl", {{"causal", true}, {"positions", "learned"}}},
      {"darl", {{"causal", true}, {"positions", "rope_1d"}}},
      {"vil", {{"directions", "uni"}, {"conv_kind", "causal1d"}, {"pooling", "cls_middle_bilateral"}}},
      {"vil", {{"directions", "uni"}, {"conv_kind", "none"}, {"cell", "paper"}}},
      {"vil1", {{"directions", "uni"}, {"stride", 2}}},
      {"vil1",
       {{"directions", "uni"},
        {"share_conv", false},
        {"value_conv", true},
        {"init_values", 0.5},
        {"skip", false}}},
  };
  return all;
}

std::string what(const Case& one) {
  std::string all = one.family;
  for (const auto& [key, value] : one.settings)
    all += " " + key + (value.is_string() ? "=" + value.as_string() : "");
  return all;
}

TEST(CausalStep, StepsAreTheRowsOfTheWholeSequence) {
  const torch::NoGradGuard no_grad;
  for (const Case& one : cases()) {
    const auto model = build(one.family, one.settings);
    auto& encoder = dynamic_cast<TokenEncoder&>(*model->backbone);
    torch::manual_seed(3);
    const Tensor images = torch::randn({2, 3, 16, 16}, torch::kFloat64);
    const Tokens tokens = encoder.tokenise(images);
    const Tensor wanted = encoder.encode(tokens).tokens;
    // A token minus its embedding by the same model without positions is its position.
    const auto bare = build(one.family, one.settings);
    auto parameters = bare->backbone->named_parameters();
    for (const auto& entry : model->backbone->named_parameters())
      parameters[entry.key()].copy_(entry.value());
    for (const char* name : {"pos_embed", "pos_embed.embed"})
      if (parameters.contains(name)) parameters[name].zero_();
    const Tensor embedded = dynamic_cast<TokenEncoder&>(*bare->backbone).tokenise(images).x;
    CausalStep& causal = stepper(*model);
    EXPECT_EQ(causal.step_refusal(), "") << what(one);
    Cache cache = causal.start(2);
    for (int64_t t = 0; t < tokens.count(); ++t) {
      const Tensor got = causal.step(embedded.slice(1, t, t + 1), cache);
      EXPECT_TRUE(torch::allclose(got, wanted.slice(1, t, t + 1), 1e-9, 1e-11)) << what(one) << " at " << t;
    }
    EXPECT_EQ(cache.tokens, tokens.count());
    EXPECT_ANY_THROW(causal.step(embedded.slice(1, 0, 1), cache)) << what(one);
  }
}

// Sequences that diverge continue from a common cache.
TEST(CausalStep, ACacheThatIsCopiedStaysAsItWas) {
  const torch::NoGradGuard no_grad;
  for (const Case& one : cases()) {
    const auto model = build(one.family, one.settings);
    CausalStep& causal = stepper(*model);
    torch::manual_seed(5);
    const Tensor a = torch::randn({1, 1, 16}, torch::kFloat64), b = torch::randn({1, 1, 16}, torch::kFloat64);
    Cache cache = causal.start(1);
    causal.step(a, cache);
    Cache other = cache;
    const Tensor first = causal.step(b, cache);
    causal.step(a, cache);
    EXPECT_TRUE(torch::equal(causal.step(b, other), first)) << what(one);
  }
}

TEST(CausalStep, ModelsThatSeeWhatIsToComeRefuse) {
  const auto refusal = [](const char* family, Value::Table settings) -> std::string {
    const auto model = build(family, std::move(settings));
    try {
      stepper(*model).start(1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage);
      return error.what();
    }
    return "no error";
  };
  const std::string start = "this model does not encode token after token: ";
  EXPECT_EQ(refusal("illama", {}),
            start + "model.mask = \"after\" divides by the weights of all tokens, must be \"before\"");
  EXPECT_EQ(refusal("illama", {{"mask", "none"}}),
            start + "model.mask = \"none\" sees tokens to come, must be \"before\"");
  EXPECT_EQ(refusal("darl", {}), start + "model.causal = false sees patches to come");
  EXPECT_EQ(refusal("vil", {}), start + "model.directions = \"bi\" must be \"uni\"");
  EXPECT_EQ(refusal("vil", {{"directions", "uni"}}), start + "model.conv_kind = \"2d\" sees patches to come");
  const auto model = build("darl", {{"causal", true}});
  Cache cache = stepper(*model).start(2);
  EXPECT_ANY_THROW(stepper(*model).step(torch::zeros({1, 1, 16}, torch::kFloat64), cache));
  model->backbone->train();
  EXPECT_ANY_THROW(stepper(*model).step(torch::zeros({2, 1, 16}, torch::kFloat64), cache));
}

}  // namespace
}  // namespace tessera::models::causal_backbone_test
