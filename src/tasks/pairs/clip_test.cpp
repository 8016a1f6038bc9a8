// Task clip: pieces against the whole, shares of processes against one, and the task's own errors.
#include "tasks/pairs/clip.h"

#include <gtest/gtest.h>

#include "core/core_testing.h"
#include "core/error.h"
#include "io/files/io_testing.h"
#include "models/base/family.h"
#include "models/base/graphs_testing.h"
#include "models/base/model.h"
#include "ops/read_backs_testing.h"
#include "tasks/base/paired.h"
#include "tasks/base/text_input.h"
#include "text/bpe_trainer.h"

namespace tessera::tasks {
namespace {

using models::table;
using torch::Tensor;

std::unique_ptr<Task> make_task(const Value& settings) {
  Value all = table(
      {{"embed_dim", 8}, {"text_dim", 16}, {"text_depth", 2}, {"text_heads", 2}, {"context_length", 12}});
  merge(all, settings);
  TaskSetup setup;
  setup.settings = clip_kind().resolve(all);
  setup.model = models::resolve_model("vit", table({{"image_size", 16},
                                                    {"patch_size", 8},
                                                    {"dim", 16},
                                                    {"depth", 2},
                                                    {"heads", 2},
                                                    {"drop_path", 0.3},
                                                    {"classes", 0}}));
  setup.preprocess.size = 16;
  setup.seed = 3;
  auto task = clip_kind().make(setup);
  move(task->parts(), torch::kCPU, torch::kFloat64);
  set_training(task->parts(), true);
  return task;
}

Inputs some_inputs(int64_t count) {
  torch::manual_seed(4);
  const TextInput bytes("bytes", {});
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    const auto own = bytes.fit("text " + std::to_string(i % 5), 12, "test");
    ids.insert(ids.end(), own.begin(), own.end());
  }
  StreamInputs stream{.name = "train", .size = count, .first = 0, .whole = count, .fields = {}};
  stream.fields.push_back({"image", torch::randn({count, 3, 16, 16}, torch::kFloat64)});
  for (const char* view : {"image_0", "image_1"})
    stream.fields.push_back({view, torch::randn({count, 3, 16, 16}, torch::kFloat64)});
  stream.fields.push_back({"tokens", torch::tensor(ids, torch::kInt32).view({count, 12})});
  return {{stream}};
}

struct Found {
  double loss = 0;
  std::vector<Tensor> gradients;
};

Found gradients_of(const Value& settings, int64_t count = 10) {
  const auto task = make_task(settings);
  const Loss loss = task->loss(some_inputs(count), {.seed = 7, .step = 2}, Collective::alone());
  loss.sum.backward();
  Found found{loss.sum.item<double>(), {}};
  for (const auto& [name, parameter] : named_parameters(task->parts()))
    found.gradients.push_back(parameter.grad().defined() ? parameter.grad() : torch::zeros_like(parameter));
  return found;
}

void expect_same(const Found& a, const Found& b) {
  EXPECT_NEAR(a.loss, b.loss, 1e-10);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i)
    EXPECT_LT((a.gradients[i] - b.gradients[i]).abs().max().item<double>(), 1e-10) << i;
}

TEST(Clip, PiecesGiveTheGradientOfTheWholeBatch) {
  for (const char* loss : {"softmax", "sigmoid"}) {
    const Found whole = gradients_of(table({{"loss", loss}}));
    for (const int64_t piece : {1, 3, 4, 10})
      expect_same(gradients_of(table({{"loss", loss}, {"piece", piece}, {"chunk", 3}})), whole);
  }
}

// Without a padding token, the id 0 may be a word, which a mask of padding would hide.
TEST(Clip, BertNeedsAPaddingToken) {
  const auto refusal = [](std::vector<std::string> special) {
    BpeTrainer trainer(
        {.vocabulary = 300, .least = 2, .special = std::move(special), .begin = "<s>", .end = "</s>"});
    trainer.add("a text");
    const TextInput input("", table({{"tokenizer", trainer.learn()}}));
    ClipConfig config;
    config.text_model = TextModel::bert;
    return usage_error_of([&] { config.bert_tower(input); });
  };
  EXPECT_EQ(refusal({"<s>", "</s>", "<pad>"}), "");
  EXPECT_NE(refusal({"<s>", "</s>"}).find("has no padding token, must have one such as [PAD]"),
            std::string::npos);
}

// BERT as the text tower: both losses and FILIP, in pieces too; every tensor of the text side is trained.
TEST(Clip, BertReadsTheTexts) {
  const Value bert = table(
      {{"text_model", "bert"}, {"bert", table({{"dim", 16}, {"depth", 1}, {"heads", 2}, {"context", 12}})}});
  for (const Value& settings : {table({}), table({{"loss", "sigmoid"}}), table({{"similarity", "tokens"}})}) {
    Value all = bert;
    merge(all, settings);
    const Found whole = gradients_of(all);
    merge(all, table({{"piece", 3}, {"chunk", 3}}));
    expect_same(gradients_of(all), whole);
  }
  const auto task = make_task(bert);
  task->loss(some_inputs(6), {.seed = 7}, Collective::alone()).sum.backward();
  int64_t texts = 0;
  for (const auto& [name, parameter] : named_parameters(task->parts())) {
    if (!name.starts_with("text.")) continue;
    ++texts;
    EXPECT_TRUE(parameter.grad().defined()) << name;
  }
  EXPECT_EQ(texts, 5 + 16 + 1);  // embeddings, a block, the projection
  const auto refusal = [&](const Value& more) {
    Value all = bert;
    merge(all, more);
    return usage_error_of([&] { make_task(all); });
  };
  EXPECT_NE(refusal(table({{"bert", table({{"vocabulary", 100}})}})).find("task.bert.vocabulary = 100"),
            std::string::npos);
  EXPECT_NE(refusal(table({{"declip", table({{"views", true}})}})).find("task.declip.texts"),
            std::string::npos);
  EXPECT_NE(refusal(table({{"text_model", "clip"}, {"text_weights", "x"}})).find("task.text_weights"),
            std::string::npos);
  EXPECT_NE(refusal(table({{"context_length", 13}})).find("longer than the 12 positions"), std::string::npos);
}

// As in a step: the mean over the batch.
Found mean_of(Found found, int64_t count) {
  found.loss /= static_cast<double>(count);
  for (Tensor& gradient : found.gradients) gradient = gradient / static_cast<double>(count);
  return found;
}

TEST(Clip, PiecesGiveTheGradientOfALargeBatch) {
  constexpr int64_t kBatch = 1024;
  for (const char* loss : {"softmax", "sigmoid"}) {
    const Found whole = mean_of(gradients_of(table({{"loss", loss}}), kBatch), kBatch);
    expect_same(mean_of(gradients_of(table({{"loss", loss}, {"piece", 64}}), kBatch), kBatch), whole);
  }
}

TEST(Clip, PiecesGiveTheGradientOfTokensAndOfViewsToo) {
  const Value views = table({{"weight", 0.7}, {"hidden", 6}, {"dim", 4}});
  for (const Value& settings : {table({{"similarity", "tokens"}}), table({{"views", views}}),
                                table({{"similarity", "tokens"}, {"views", views}, {"loss", "sigmoid"}})}) {
    const Found whole = gradients_of(settings);
    for (const int64_t piece : {3, 4}) {
      Value cut = settings;
      merge(cut, table({{"piece", piece}, {"chunk", 3}}));
      expect_same(gradients_of(cut), whole);
    }
  }
}

// Views add their loss; the rest of the step does not change.
TEST(Clip, ViewsAddTheirLoss) {
  const auto loss_of = [](double weight) {
    const auto task = make_task(
        weight > 0 ? table({{"views", table({{"weight", weight}, {"hidden", 6}, {"dim", 4}})}}) : Value());
    const Loss loss = task->loss(some_inputs(10), {.seed = 7, .step = 2}, Collective::alone());
    EXPECT_EQ(loss.terms.size(), task->step_metrics().size());
    const double views = weight > 0 ? loss.terms.at(1).sum.item<double>() : 0;
    return std::pair(loss.sum.item<double>(), views);
  };
  const double without = loss_of(0).first;
  for (const double weight : {0.5, 1.0}) {
    const auto [loss, views] = loss_of(weight);
    EXPECT_GT(views, 0);
    EXPECT_NEAR(loss, without + weight * views, 1e-10);
  }
}

// A text matches its own rows, whatever follows its end.
TEST(Clip, SimilaritiesOfTokensAreThoseOfTheLoss) {
  const auto task = make_task(table({{"similarity", "tokens"}}));
  set_training(task->parts(), false);
  auto& model = dynamic_cast<PairedEmbedding&>(*task);
  EXPECT_FALSE(model.averages_prompts());
  const torch::NoGradGuard no_grad;
  const Tensor texts = model.embed_texts({"a", "a longer text", "a"}).to(torch::kFloat64);
  const Tensor images = model.embed_images(some_inputs(4).at("image"));
  ASSERT_EQ(texts.sizes(), (std::vector<int64_t>{3, 12 * 8}));
  ASSERT_EQ(images.sizes(), (std::vector<int64_t>{4, 4 * 8}));
  const Tensor scores = model.similarities(images, texts);
  EXPECT_EQ(scores.sizes(), (std::vector<int64_t>{4, 3}));
  EXPECT_TRUE(torch::allclose(scores.select(1, 0), scores.select(1, 2)));
  EXPECT_LT(scores.abs().max().item<double>(), 1 + 1e-9);
  EXPECT_EQ(texts.view({3, 12, 8})[0].ne(0).any(1).sum().item<int64_t>(), 3);  // start, a, end
}

TEST(Clip, VectorsOfImagesByGraphsHaveTheSameBits) {
  const auto task = make_task({});
  set_training(task->parts(), false);
  auto& model = dynamic_cast<PairedEmbedding&>(*task);
  const torch::NoGradGuard no_grad;
  const Tensor images = some_inputs(4).at("image"), other = torch::randn_like(images);
  const Tensor wanted = model.embed_images(images), of_other = model.embed_images(other);
  const models::RecordedGraphs graphs;
  for (int call = 0; call < 3; ++call) {
    EXPECT_TRUE(model.embed_images(images).equal(wanted));
    EXPECT_TRUE(model.embed_images(other).equal(of_other));
  }
  EXPECT_EQ(models::RecordedGraphs::counts().captures, 1);
  EXPECT_EQ(models::RecordedGraphs::counts().replays, 4);
}

// Where texts end is read from the batch of the host.
TEST(Clip, ALossReadsNothingBack) {
  const auto task = make_task({});
  const Inputs inputs = some_inputs(6);
  EXPECT_EQ(ops::read_backs([&] { task->loss(inputs, {.seed = 7, .step = 2}, Collective::alone()); }), 0);
}

TEST(Clip, OnePairIsNoContrast) {
  const auto task = make_task({});
  task->loss(some_inputs(1), {}, Collective::alone());
  EXPECT_THROW(task->after_step({}), Error);
}

TEST(Clip, SettingsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(make_task(table({{"text_heads", 3}})), Error);
  EXPECT_THROW(make_task(table({{"image_projection", false}})), Error);
  EXPECT_THROW(make_task(table({{"templates", Value::Array{Value("a photo")}}})), Error);
}

// As for weights without their tokeniser.
TEST(Clip, WithoutItsTokeniserAModelReadsImagesAlone) {
  const auto task = make_task(table({{"vocab_size", 77}}));
  auto& model = dynamic_cast<PairedEmbedding&>(*task);
  EXPECT_EQ(model.embed_images(torch::rand({2, 3, 16, 16}, torch::kFloat64)).size(0), 2);
  EXPECT_NE(error_of([&] { model.embed_texts({"a"}); }).find("token embedding 77 rows: they must be equal"),
            std::string::npos);
}

TEST(Clip, TheScaleStaysBelowAHundred) {
  const auto task = make_task(table({{"temperature", 0.001}}));
  task->after_step({});
  EXPECT_NEAR(dynamic_cast<PairedEmbedding&>(*task).similarity_scale(), 100, 1e-9);
}

TEST(TextInput, VectorsStandInTheOrderOfTheirTexts) {
  const TextInput bytes("bytes", {});
  std::vector<std::string> texts;
  for (int64_t i = 0; i < 600; ++i)
    texts.emplace_back(static_cast<size_t>(1 + i * 7 % 29), static_cast<char>('a' + i % 26));
  CutTexts cut;
  int64_t calls = 0;
  const Tensor rows = embed_in_batches(bytes, texts, 20, 1, &cut, [&](const Tensor& ids) {
    ++calls;
    return ids.slice(1, 1, 2).to(torch::kFloat32);
  });
  ASSERT_EQ(rows.size(0), 600);
  EXPECT_EQ(calls, 3);
  EXPECT_GT(cut.count, 0);
  EXPECT_EQ(cut.first.size(), 22U);
  EXPECT_EQ(cut.first_lost, 4);
  for (int64_t i = 0; i < 600; ++i)
    ASSERT_EQ(rows[i].item<float>(), static_cast<float>('a' + i % 26 + 1)) << i;
  EXPECT_EQ(embed_in_batches(bytes, {}, 20, 4, &cut, {}).sizes(), (std::vector<int64_t>{0, 4}));
}

TEST(TextInput, BytesComeBack) {
  const TextInput bytes("bytes", {});
  int64_t cut = 0;
  const auto ids = bytes.fit("crème brûlée", 40, "test", &cut);
  EXPECT_EQ(cut, 0);
  EXPECT_EQ(bytes.decode(ids), "crème brûlée");
  EXPECT_EQ(bytes.fit("abcdef", 5, "test", &cut).back(), bytes.end());
  EXPECT_EQ(cut, 3);
  EXPECT_THROW(bytes.fit("\xff\xfe", 9, "test"), Error);
  EXPECT_EQ(TextInput("nowhere.json", table({{"tokenizer", "bytes"}})).size(), bytes.size());
  EXPECT_THROW(TextInput("nowhere.json", {}), Error);
}

class Captions final : public data::Source {
 public:
  explicit Captions(std::vector<std::string> captions) : captions_(std::move(captions)) {}
  int64_t size() const override { return std::ssize(captions_); }
  data::RawSample read(int64_t index) const override {
    data::RawSample sample;
    sample.name = std::to_string(index);
    if (const std::string& caption = captions_[static_cast<size_t>(index)]; !caption.empty())
      sample.annotation.captions = {caption};
    return sample;
  }
  uint64_t fingerprint() const override { return 0; }
  std::string describe() const override { return "some captions"; }

 private:
  std::vector<std::string> captions_;
};

TEST(TextInput, LearnsATokeniserFromTheTrainingCaptions) {
  const std::vector<std::string> texts = {"red heart", "green heart", "heart, red", "a green apple"};
  const std::vector<std::string> turned(texts.rbegin(), texts.rend());
  const Captions captions(texts), backwards(turned), none(std::vector<std::string>{""});
  const TextInput learned("learned", {}, &captions), again("learned", {}, &backwards);
  // The tokeniser does not depend on the order of the captions; a word is one token at any position.
  EXPECT_TRUE(again.is_that_of(learned.metadata()));
  EXPECT_NE(learned.pad(), learned.start());
  EXPECT_EQ(learned.fit("heart heart", 6, "test"),
            (std::vector<int32_t>{learned.start(), learned.fit("heart", 6, "test")[1],
                                  learned.fit("heart", 6, "test")[1], learned.end(), learned.pad(),
                                  learned.pad()}));
  EXPECT_EQ(learned.decode(learned.fit("green heart, blue", 30, "test")), "green heart, blue");
  // Weights store it; without data there are ids for a description.
  EXPECT_EQ(TextInput("learned", learned.metadata()).size(), learned.size());
  EXPECT_EQ(TextInput("learned", {}).size(), TextInput::kLearnedTokens);
  EXPECT_THROW(TextInput("learned", {}, &none), Error);
}

}  // namespace
}  // namespace tessera::tasks
