// Stacks outside backbones read their blocks' weights in the passes of these blocks alone, and recomputed blocks give the
// same gradients. tests/contract has the same for every backbone.
#include "nn/layer_division_testing.h"
#include "nn/units_testing.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "models/heads/detr.h"
#include "models/language/bert.h"
#include "models/language/language_model.h"
#include "models/language/seq2seq.h"
#include "models/pairs/coca.h"
#include "models/pairs/simvlm.h"

namespace tessera::models::units_test {
namespace {

using torch::Tensor;

Tensor ids_of_two() { return torch::tensor({{1, 4, 7, 3, 9}, {2, 8, 6, 5, 1}}, torch::kInt64); }
Tensor numbers(int64_t n) { return torch::full({2}, n, torch::kInt64); }

void fill(torch::nn::Module& module) {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : module.parameters()) parameter.normal_(0, 0.2);
  module.to(torch::kFloat64);
  module.train();
}

std::vector<Tensor> gradients_of(torch::nn::Module& module, const std::function<Tensor()>& output) {
  output().square().sum().backward();
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : module.parameters()) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::zeros_like(parameter));
    parameter.mutable_grad().reset();
  }
  return gradients;
}

void expect_same_gradients(torch::nn::Module& module, const std::function<Tensor()>& output) {
  const std::vector<Tensor> want = gradients_of(module, output);
  for (const bool recompute : {false, true}) {
    SCOPED_TRACE(recompute ? "recomputed" : "kept");
    nn::set_checkpointing(module, recompute);
    nn::PoisonedUnits poisoned(module);
    EXPECT_GT(poisoned.size(), 0u);
    const nn::UnitScope units(&poisoned);
    const std::vector<Tensor> found = gradients_of(module, output);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(torch::allclose(found[i], want[i], 1e-12, 1e-12)) << i;
  }
}

TextTowerConfig small_tower() {
  TextTowerConfig config;
  config.vocab_size = 20, config.context_length = 9, config.dim = 16, config.heads = 2, config.depth = 2;
  config.embed_dim = 8, config.end_token = 19;
  return config;
}

TEST(ModelUnits, TextTower) {
  const auto tower = std::make_shared<TextTower>(small_tower());
  fill(*tower);
  expect_same_gradients(*tower, [&] { return tower->forward(ids_of_two()); });
}

TEST(ModelUnits, Coca) {
  CocaConfig config;
  config.text = small_tower(), config.image_width = 12, config.embed_dim = 8, config.queries = 3,
  config.pooler_heads = 2, config.decoder_depth = 2, config.decoder_heads = 2;
  const auto coca = std::make_shared<Coca>(config);
  fill(*coca);
  const Tensor image = torch::randn({2, 5, 12}, torch::kFloat64);
  expect_same_gradients(
      *coca, [&] { return coca->decode(coca->image(image).tokens, coca->text(ids_of_two()).tokens); });
}

TEST(ModelUnits, SimVlm) {
  for (const int64_t decoder : {0, 2}) {
    const auto model = std::make_shared<SimVlm>(SimVlmConfig{.vocab_size = 20,
                                                             .context_length = 8,
                                                             .dim = 16,
                                                             .heads = 2,
                                                             .depth = 2,
                                                             .decoder_depth = decoder,
                                                             .image_width = 6,
                                                             .image_tokens = 4});
    fill(*model);
    const Tensor image = torch::randn({2, 4, 6}, torch::kFloat64);
    expect_same_gradients(
        *model, [&] { return model->forward(image, ids_of_two(), numbers(2), numbers(5)).slice(1, 2, 5); });
  }
}

TEST(ModelUnits, LanguageModels) {
  for (const LanguageKind kind : {LanguageKind::gpt2, LanguageKind::llama}) {
    const auto model = std::make_shared<LanguageModel>(
        LanguageConfig{.kind = kind, .vocabulary = 23, .dim = 16, .depth = 2, .heads = 4, .hidden = 24}
            .complete());
    fill(*model);
    expect_same_gradients(*model, [&] { return model->forward({.ids = ids_of_two()}); });
  }
  const auto bert = std::make_shared<Bert>(
      BertConfig{.vocabulary = 23, .dim = 16, .depth = 2, .heads = 4, .hidden = 24, .context = 8});
  fill(*bert);
  expect_same_gradients(*bert, [&] { return bert->hidden({.ids = ids_of_two()}); });
}

TEST(ModelUnits, EncoderAndDecoder) {
  for (const Seq2SeqKind kind : {Seq2SeqKind::transformer, Seq2SeqKind::t5}) {
    const auto model = make_seq2seq({.kind = kind,
                                     .vocabulary = 29,
                                     .dim = 16,
                                     .heads = 2,
                                     .hidden = 24,
                                     .encoder_depth = 2,
                                     .decoder_depth = 2,
                                     .buckets = 8,
                                     .furthest = 12});
    fill(*model);
    expect_same_gradients(
        *model, [&] { return model->decode(ids_of_two(), {}, model->encode(ids_of_two(), {}), {}); });
  }
}

TEST(ModelUnits, Detr) {
  const auto detr = std::make_shared<Detr>(DetrConfig{.embed_dim = 16,
                                                      .num_heads = 2,
                                                      .encoder_depth = 2,
                                                      .decoder_depth = 2,
                                                      .hidden = 24,
                                                      .queries = 5},
                                           6, 3);
  fill(*detr);
  const Tensor map = torch::randn({2, 6, 3, 4}, torch::kFloat64),
               padding = torch::zeros({2, 3, 4}, torch::kBool);
  expect_same_gradients(*detr, [&] {
    const Detr::Objects found = detr->forward(map, padding);
    return torch::cat({found.logits, found.boxes}, -1);
  });
}

// Tensor parallelism, also with fewer heads of keys than of queries and with unequal shares.
TEST(ModelUnits, ProcessesDivideTheLayersOfLanguageModels) {
  for (const LanguageKind kind : {LanguageKind::gpt2, LanguageKind::llama, LanguageKind::qwen2,
                                  LanguageKind::bloom, LanguageKind::mpt}) {
    SCOPED_TRACE(name_of(kind));
    LanguageConfig config;
    config.kind = kind, config.vocabulary = 20, config.context = 16;
    config.dim = 24, config.depth = 2, config.heads = 6, config.hidden = 40;
    if (kind == LanguageKind::llama) config.kv_heads = 3;
    const auto make = [&] {
      auto model = std::make_shared<LanguageModel>(config);
      fill(*model);
      return model;
    };
    for (const int64_t processes : {2, 3})
      nn::expect_divides(processes, make, [](torch::nn::Module& module) {
        return dynamic_cast<LanguageModel&>(module).forward({.ids = ids_of_two()});
      });
  }
}

}  // namespace
}  // namespace tessera::models::units_test
