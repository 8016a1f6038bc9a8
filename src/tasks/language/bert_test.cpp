// Task bert: texts with their special tokens, masks, the loss against its formula, and classes of texts.
#include "tasks/language/bert.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "models/base/family.h"
#include "nn/init.h"
#include "text/conversation.h"

namespace tessera::tasks {
namespace {

using models::table;

constexpr BertTokens kTokens{.begin = 90, .end = 91, .mask = 92, .pad = 93};

TaskSetup bert_setup(const Value& settings = {}) {
  Value all =
      table({{"length", 8}, {"encoder", table({{"dim", 16}, {"depth", 2}, {"heads", 2}, {"context", 16}})}});
  merge(all, settings);
  TaskSetup setup;
  setup.settings = bert_kind().resolve(all);
  setup.model = models::resolve_model(models::kNoBackbone);
  setup.seed = 3;
  return setup;
}

TEST(BertText, TheLongerTextIsCutFirst) {
  const BertText one = bert_text({1, 2, 3}, {}, false, 8, kTokens);
  EXPECT_EQ(one.ids, (std::vector<int32_t>{90, 1, 2, 3, 91}));
  EXPECT_EQ(one.segments, (std::vector<int32_t>{0, 0, 0, 0, 0}));
  const BertText two = bert_text({1, 2, 3, 4, 5}, {6, 7}, true, 8, kTokens);
  EXPECT_EQ(two.ids, (std::vector<int32_t>{90, 1, 2, 3, 91, 6, 7, 91}));
  EXPECT_EQ(two.segments, (std::vector<int32_t>{0, 0, 0, 0, 0, 1, 1, 1}));
}

TEST(MaskWindow, MasksTheShareAndKeepsItsTargets) {
  int64_t masked = 0, chosen = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    std::vector<int32_t> given = {90}, targets(24);
    for (int32_t k = 0; k < 20; ++k) given.push_back(k == 9 ? 91 : k);
    given.resize(24, static_cast<int32_t>(kNotLearned));
    std::vector<int32_t> ids = given;
    RandomStream random(1, "test", i);
    mask_window(0.15, kTokens, 90, random, ids, targets);
    int64_t own = 0;
    for (size_t k = 0; k < ids.size(); ++k) {
      EXPECT_TRUE(targets[k] < 0 ? ids[k] == given[k] : targets[k] == given[k]);
      own += targets[k] >= 0, masked += ids[k] == 92;
    }
    EXPECT_EQ(own, 3);  // 0.15 of 19, rounded
    EXPECT_LT(targets[0], 0);
    EXPECT_LT(targets[10], 0);
    chosen += own;
  }
  EXPECT_NEAR(static_cast<double>(masked) / static_cast<double>(chosen), 0.8, 0.05);
  std::vector<int32_t> alone = {90, 5, static_cast<int32_t>(kNotLearned)}, targets(3);
  RandomStream random(1, "test");
  mask_window(0.01, kTokens, 90, random, alone, targets);
  EXPECT_EQ(targets[1], 5);
}

TEST(Bert, HasThePublishedNumbersOfParameters) {
  const nn::ShapesOnly shapes_only;
  const models::Bert base(models::BertConfig{}, {.pooled = true}),
      large(models::BertConfig{.dim = 1024, .depth = 24, .heads = 16}, {.pooled = true});
  EXPECT_EQ(models::count_parameters(base), 109'482'240);
  EXPECT_EQ(models::count_parameters(large), 335'141'888);
}

TEST(Bert, PaddingChangesNothing) {
  models::Bert bert(models::BertConfig{.vocabulary = 50, .dim = 16, .depth = 2, .heads = 2, .context = 12});
  bert.initialise(1);
  bert.to(torch::kFloat64);
  torch::manual_seed(1);
  const torch::Tensor ids = torch::randint(0, 50, {3, 9}, torch::kInt64);
  torch::Tensor mask = torch::ones({3, 9}, torch::kBool);
  mask.slice(1, 6).fill_(false);
  const torch::Tensor padded = bert.hidden({.ids = ids, .mask = mask}).slice(1, 0, 6),
                      alone = bert.hidden({.ids = ids.slice(1, 0, 6)});
  EXPECT_LT((padded - alone).abs().max().item<double>(), 1e-12);
  EXPECT_THROW(bert.hidden({.ids = torch::zeros({1, 13}, torch::kInt64)}), Error);
}

// Two tokens of a window of eight may be masked.
TEST(BertTask, TheLossIsThatOfMaskedTokens) {
  const auto task = bert_kind().make(bert_setup(table({{"mask_ratio", 0.3}})));
  move(task->parts(), torch::kCPU, torch::kFloat64);
  torch::manual_seed(1);
  torch::Tensor ids = torch::randint(0, 200, {2, 8}, torch::kInt32),
                targets = torch::full({2, 8}, static_cast<int32_t>(kNotLearned), torch::kInt32);
  targets[0][3] = 17, targets[1][1] = 5, targets[1][6] = 200;
  const Inputs inputs{
      {{.name = "train", .size = 2, .first = 0, .whole = 2, .fields = {{"ids", ids}, {"targets", targets}}}}};
  EXPECT_EQ(task->weight(inputs), 3);
  const auto& bert = dynamic_cast<const models::Bert&>(*task->parts()[0].module);
  const torch::Tensor scores =
      torch::log_softmax(bert.token_scores(bert.hidden({.ids = ids.to(torch::kInt64)})), -1);
  const double expected = -(scores[0][3][17] + scores[1][1][5] + scores[1][6][200]).item<double>();
  EXPECT_NEAR(task->loss(inputs, {}, Collective::alone()).sum.item<double>(), expected, 1e-9);
}

TEST(BertTask, SettingsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(bert_kind().make(bert_setup(table({{"length", 17}}))), Error);
  EXPECT_THROW(bert_kind().make(bert_setup(table({{"encoder", table({{"heads", 3}})}}))), Error);
  EXPECT_THROW(bert_kind().make(bert_setup(table({{"encoder", table({{"vocabulary", 100}})}}))), Error);
  EXPECT_THROW(bert_kind().resolve(table({{"mask_ratio", 0.0}})), Error);
  TaskSetup images = bert_setup();
  images.model = models::resolve_model("vit", table({{"classes", 0}}));
  EXPECT_THROW(bert_kind().make(images), Error);
}

}  // namespace
}  // namespace tessera::tasks
