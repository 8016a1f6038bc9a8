// Task language: windows of packed texts, the loss against its formula, and errors.
#include "tasks/language/language.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "models/base/family.h"
#include "nn/layer_division_testing.h"
#include "tasks/language/language_part.h"
#include "tasks/language/packed_texts.h"
#include "text/bpe_trainer.h"
#include "text/conversation.h"

namespace tessera::tasks {
namespace {

using models::table;

class Documents final : public data::Source {
 public:
  explicit Documents(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  int64_t size() const override { return std::ssize(texts_); }
  data::RawSample read(int64_t index) const override {
    data::RawSample sample{.name = "document"};
    sample.annotation.captions = {texts_.at(static_cast<size_t>(index))};
    return sample;
  }
  uint64_t fingerprint() const override { return static_cast<uint64_t>(texts_.size()); }
  std::string describe() const override { return "documents"; }

 private:
  std::vector<std::string> texts_;
};

TaskSetup some_setup(const Value& settings = {}) {
  Value all =
      table({{"length", 8}, {"language", table({{"dim", 16}, {"depth", 2}, {"heads", 2}, {"context", 16}})}});
  merge(all, settings);
  TaskSetup setup;
  setup.settings = language_kind().resolve(all);
  setup.model = models::resolve_model(models::kNoBackbone);
  setup.seed = 3;
  return setup;
}

TEST(PackedTexts, EveryTokenButTheFirstIsPredictedOnce) {
  const auto bytes = open_task_tokeniser("bytes", 1, some_setup(), "test").value();
  const int32_t end = separator_of(bytes, "bytes");
  for (const int64_t length : {2, 3, 7, 8, 100}) {
    const auto texts = std::make_shared<Documents>(std::vector<std::string>{"abcdef", "gh", "ijk"});
    const PackedTexts packed(texts, bytes, end, length);
    std::vector<int64_t> row;
    for (int64_t i = 0; i < packed.size(); ++i) {
      const std::vector<int64_t> ids = packed.read(i).annotation.classes;
      EXPECT_LE(std::ssize(ids), length + 1);
      EXPECT_GE(std::ssize(ids), 2);
      if (i > 0) {
        EXPECT_EQ(ids.front(), row.back()) << length;
      }
      row.insert(row.end(), ids.begin() + (i > 0), ids.end());
    }
    EXPECT_EQ(std::ssize(row), packed.tokens());
    EXPECT_EQ(row.front(), end);
    EXPECT_EQ(row.back(), end);
    EXPECT_EQ(std::count(row.begin(), row.end(), end), 4);
    EXPECT_EQ(packed.bytes(), 11);
  }
}

TEST(Language, TheLossIsThatOfEachTokenFromThoseBefore) {
  const auto task = language_kind().make(some_setup());
  move(task->parts(), torch::kCPU, torch::kFloat64);
  set_training(task->parts(), true);
  torch::manual_seed(1);
  torch::Tensor ids = torch::randint(0, 200, {3, 9}, torch::kInt32);
  ids.index_put_({2, torch::indexing::Slice(5)}, static_cast<int32_t>(kNotLearned));
  const Inputs inputs{{{.name = "train", .size = 3, .first = 0, .whole = 3, .fields = {{"ids", ids}}}}};
  const Loss loss = task->loss(inputs, {}, Collective::alone());
  EXPECT_EQ(task->weight(inputs), 8 + 8 + 4);
  const auto& model = *dynamic_cast<const Answers&>(*task).answering_model().language;
  double expected = 0;
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t at = 1; at < (row == 2 ? 5 : 9); ++at) {
      const torch::Tensor before = ids[row].slice(0, 0, at).to(torch::kInt64).unsqueeze(0);
      const torch::Tensor scores =
          const_cast<models::LanguageModel&>(model).forward({.ids = before}).select(1, at - 1).squeeze(0);
      expected -= torch::log_softmax(scores, 0)[ids[row][at].item<int64_t>()].item<double>();
    }
  EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-9);
}

TEST(Language, ItBeginsWithTheWeightsOfAnother) {
  const auto task = language_kind().make(some_setup());
  const Tokeniser own = dynamic_cast<const Answers&>(*task).answering_model().tokeniser;
  const auto stored_of = [](int64_t vocabulary, int64_t dim) {
    auto model = std::make_shared<models::LanguageModel>(
        models::LanguageConfig{.vocabulary = vocabulary, .dim = dim, .depth = 2, .heads = 2, .context = 16});
    model->initialise(9);
    return model;
  };
  auto& beginner = dynamic_cast<LanguageBeginner&>(*task);
  const auto stored = stored_of(200, 16);
  beginner.begin_language(*stored, own);
  const auto parameters = dynamic_cast<const Answers&>(*task).answering_model().language->named_parameters();
  const torch::Tensor embedding = parameters["model.embed_tokens.weight"];
  EXPECT_EQ(embedding.size(0), 257);
  EXPECT_TRUE(
      torch::equal(embedding.slice(0, 0, 200), stored->named_parameters()["model.embed_tokens.weight"]));
  EXPECT_GT(embedding.slice(0, 200).abs().max().item<double>(), 0);
  EXPECT_THROW(beginner.begin_language(*stored_of(257, 24), own), Error);
  EXPECT_THROW(beginner.begin_language(*stored_of(300, 16), own), Error);
  BpeTrainer another({.vocabulary = 257, .least = 2, .special = {"<end>"}});
  another.add("a");
  EXPECT_THROW(beginner.begin_language(*stored, Tokeniser::from_definition(another.learn(), "test")), Error);
}

TEST(Language, SettingsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(language_kind().make(some_setup(table({{"length", 17}}))), Error);
  EXPECT_THROW(language_kind().make(some_setup(table({{"tokenizer", ""}}))), Error);
  TaskSetup images = some_setup();
  images.model = models::resolve_model("vit", table({{"classes", 0}}));
  EXPECT_THROW(language_kind().make(images), Error);
}

// Tensor parallelism: each process has the logits of some words.
TEST(Language, ProcessesDivideTheWords) {
  models::LanguageConfig config;
  config.kind = models::LanguageKind::gpt2, config.vocabulary = 23, config.context = 16;
  config.dim = 16, config.depth = 1, config.heads = 4, config.hidden = 24;
  constexpr int kNone = kNotLearned;
  const torch::Tensor ids = torch::tensor({{1, 4, 22, 3, 9}, {2, 8, 6, 0, 1}}, torch::kInt64),
                      labels = torch::tensor({{4, 22, 3, 9, kNone}, {8, 6, 0, 1, 7}}, torch::kInt64);
  const auto make = [&] {
    auto model = std::make_shared<models::LanguageModel>(config);
    model->initialise(5);
    model->to(torch::kFloat64);
    return model;
  };
  for (const int64_t processes : {2, 3})
    nn::expect_divides(processes, make, [&](torch::nn::Module& module) {
      auto& model = dynamic_cast<models::LanguageModel&>(module);
      const torch::Tensor logits = model.logits_share(model.hidden({.ids = ids}));
      EXPECT_EQ(logits.size(-1) < 23, nn::LayerDivisionScope::current() != nullptr);
      const Loss loss = token_loss(logits, labels, 23);
      const auto right = (model.logits(model.hidden({.ids = ids})).argmax(-1) == labels).sum().item<float>();
      EXPECT_EQ(loss.terms[0].sum.item<float>(), right / 9);
      return loss.sum;
    });
}

}  // namespace
}  // namespace tessera::tasks
