// Forward passes with lengths or branches that depend on values: the host decides by its own, and reads nothing back.
#include <gtest/gtest.h>

#include <limits>

#include "models/base/model.h"
#include "models/heads/detr.h"
#include "models/language/llava.h"
#include "models/pairs/text_tower.h"
#include "nn/attention.h"
#include "nn/host_values.h"
#include "ops/read_backs_testing.h"

namespace tessera::models::host_reads_test {
namespace {

using ops::read_backs;
using torch::Tensor;

TEST(HostReads, DetrDecidesByPaddingOfTheHost) {
  const torch::NoGradGuard no_grad;
  Detr detr(
      {.embed_dim = 16, .num_heads = 2, .encoder_depth = 2, .decoder_depth = 2, .hidden = 24, .queries = 5},
      6, 3);
  detr.initialise(1);
  const Tensor map = torch::randn({2, 6, 3, 4}), none = torch::zeros({2, 12, 16}, torch::kBool);
  Tensor some = none.clone();
  some.select(0, 1).slice(1, 8).fill_(true);
  for (const Tensor& padding : {none, some}) EXPECT_EQ(read_backs([&] { detr.forward(map, padding); }), 0);
  // Padding changes only the image that has some.
  const Tensor plain = detr.forward(map, none).logits, padded = detr.forward(map, some).logits;
  EXPECT_TRUE(plain.select(1, 0).allclose(padded.select(1, 0), 1e-5, 1e-5));
  EXPECT_FALSE(plain.select(1, 1).allclose(padded.select(1, 1), 1e-5, 1e-5));
}

TEST(HostReads, TextTowersEndWhereTheHostsTextsEnd) {
  const torch::NoGradGuard no_grad;
  TextTowerConfig config;
  config.vocab_size = 20, config.context_length = 9, config.dim = 16, config.heads = 2, config.depth = 2;
  config.embed_dim = 8, config.end_token = 19;
  const Tensor ids = torch::tensor({{1, 4, 7, 19, 0, 0, 0}, {1, 2, 19, 0, 0, 0, 0}}, torch::kInt64);
  for (const TextPool pool :
       {TextPool::largest, TextPool::end_token, TextPool::last, TextPool::first, TextPool::class_token}) {
    config.pool = pool;
    TextTower tower(config);
    tower.initialise(2);
    EXPECT_EQ(read_backs([&] { tower.forward(ids); }), 0);
    const bool ends = pool == TextPool::largest || pool == TextPool::end_token;
    const int64_t length = ends ? 4 : pool == TextPool::first ? 1 : 7;
    EXPECT_EQ(tower.length_read(ids), length);
    // Ids of a device are cut by those of the host.
    EXPECT_EQ(tower.read_part(ids.to(torch::kMeta), ids).size(1), length);
    EXPECT_TRUE(tower.forward(tower.read_part(ids, ids)).equal(tower.forward(ids)));
    config.causal = false;
    EXPECT_EQ(TextTower(config).length_read(ids), 7);
    config.causal = true;
  }
}

TEST(HostReads, PlacesOfImagesAreCountedOnTheHost) {
  const Tensor places = torch::tensor({{true, false, true}, {false, true, false}});
  const Tensor embedded = torch::zeros({2, 3, 4}), features = torch::ones({3, 4});
  EXPECT_EQ(nn::count_true(places), 3);
  EXPECT_EQ(nn::count_true(places.t()), 3);
  EXPECT_EQ(nn::count_true(places.slice(0, 0, 0)), 0);
  EXPECT_EQ(read_backs([&] { splice(embedded, places, features); }), 0);
  // A device's places are not read.
  const Tensor there =
      splice(embedded.to(torch::kMeta), places.to(torch::kMeta), features.to(torch::kMeta), places);
  EXPECT_EQ(there.sizes(), embedded.sizes());
}

// The first data set the steps; later passes do not look again.
TEST(HostReads, AQuantisedVitReadsItsStepsOnce) {
  const torch::NoGradGuard no_grad;
  const ModelSpec spec = resolve_model(
      "vit",
      table(
          {{"image_size", 32}, {"patch_size", 16}, {"dim", 16}, {"depth", 2}, {"heads", 2}, {"classes", 5}}));
  const auto model = build_backbone(spec, 3);
  for (const auto& module : model->named_modules()) {
    if (auto* attention = dynamic_cast<nn::AttentionImpl*>(module.value().get())) attention->quantise(4);
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(module.value().get()))
      if (module.key().find("blocks") != std::string::npos)
        linear->quantise({.weights = 4, .activations = 4});
  }
  model->eval();
  const Tensor images = torch::randn({2, 3, 32, 32});
  const auto pass = [&] { model->embed(images); };
  EXPECT_GT(read_backs(pass), 0);
  const Tensor scores = model->embed(images);  // reads that the steps are set
  EXPECT_EQ(read_backs(pass), 0);
  EXPECT_TRUE(model->embed(images).equal(scores));
  // Other values in the same memory, and other memory, are seen.
  for (const bool other_memory : {false, true}) {
    std::vector<Tensor> steps;
    for (const auto& entry : model->named_parameters())
      if (entry.key().ends_with("log_step") && entry.key().find("weight_log") == std::string::npos)
        steps.push_back(entry.value());
    ASSERT_GT(steps.size(), 8u);
    for (Tensor& step : steps) {
      const Tensor unset = torch::full_like(step, std::numeric_limits<double>::infinity());
      if (other_memory)
        step.set_data(unset);
      else
        step.copy_(unset);
    }
    pass();
    for (const Tensor& step : steps) EXPECT_TRUE(step.isfinite().all().item<bool>());
    pass();
    EXPECT_EQ(read_backs(pass), 0);
    EXPECT_TRUE(model->embed(images).equal(scores));
  }
}

}  // namespace
}  // namespace tessera::models::host_reads_test
