// Attention of a captioning model, word by word.
#include "tasks/pairs/caption_model.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/base/family.h"
#include "tasks/pairs/coca.h"
#include "tasks/pairs/simvlm.h"

namespace tessera::tasks {
namespace {

using models::table;

TEST(WordAttention, TokensOfAWordAreBroughtTogether) {
  const TextInput bytes("bytes", {});
  const std::vector<int32_t> ids = bytes.fit("a bc", 8, "test");
  // Row i predicts position i + 1: "a", " ", "b", "c", the end.
  torch::Tensor weights = torch::zeros({8, 4});
  weights[0][0] = 0.5, weights[1][1] = 0.25, weights[2][1] = 0.25, weights[3][3] = 1.5, weights[4][2] = 9;
  const auto words = word_attention(weights, ids, bytes);
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(words[0].word, "a");
  EXPECT_EQ(words[1].word, "bc");
  EXPECT_TRUE(torch::allclose(words[0].map, torch::tensor({{1.0f, 0.0f}, {0.0f, 0.0f}})));
  EXPECT_TRUE(torch::allclose(words[1].map, torch::tensor({{0.0f, 0.25f}, {0.0f, 0.75f}})));
  EXPECT_THROW(word_attention(torch::zeros({8, 5}), ids, bytes), Error);
}

class Attention : public testing::TestWithParam<std::pair<std::string, Value>> {};

TEST_P(Attention, EachWordHasAMapOfThePatches) {
  const auto& [name, settings] = GetParam();
  const TaskKind kind = name == "coca" ? coca_kind() : simvlm_kind();
  Value all = table({{"text_dim", 16}, {"text_depth", 2}, {"text_heads", 2}, {"context_length", 24}});
  merge(all, settings);
  TaskSetup setup;
  setup.settings = kind.resolve(all);
  setup.model = models::resolve_model(
      "vit",
      table(
          {{"image_size", 24}, {"patch_size", 8}, {"dim", 16}, {"depth", 1}, {"heads", 2}, {"classes", 0}}));
  setup.preprocess.size = 24;
  const auto task = kind.make(setup);
  set_training(task->parts(), false);
  const torch::NoGradGuard no_grad;
  auto& writer = dynamic_cast<Captioner&>(*task);
  torch::manual_seed(1);
  const torch::Tensor image = torch::randn({1, 3, 24, 24});
  const auto words = writer.attention(image, "a red star");
  ASSERT_EQ(words.size(), 3u);
  for (const WordAttention& word : words) {
    ASSERT_EQ(word.map.sizes(), (std::vector<int64_t>{3, 3}));
    EXPECT_GE(word.map.min().item<float>(), 0);
    EXPECT_NEAR(word.map.sum().item<float>(), 1, 1e-5);
  }
  // A word does not depend on later words.
  const auto other = writer.attention(image, "a red disc");
  EXPECT_EQ(other[2].word, "disc");
  EXPECT_TRUE(torch::allclose(words[1].map, other[1].map));
  EXPECT_FALSE(
      torch::allclose(words[0].map, writer.attention(torch::randn_like(image), "a red star")[0].map));
}

INSTANTIATE_TEST_SUITE_P(Captioners, Attention,
                         testing::Values(std::pair("coca", table({{"embed_dim", 8},
                                                                  {"decoder_depth", 2},
                                                                  {"decoder_heads", 2},
                                                                  {"queries", 4},
                                                                  {"pooler_heads", 2}})),
                                         std::pair("simvlm", table({{"decoder_depth", 0}})),
                                         std::pair("simvlm", table({{"decoder_depth", 1}}))));

}  // namespace
}  // namespace tessera::tasks
