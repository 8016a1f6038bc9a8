// Few-shot prompts: their form, the likelihoods of labels against whole passes, and refused sets.
#include "tasks/language/few_shot.h"

#include <gtest/gtest.h>

#include <set>

#include "core/core_testing.h"
#include "core/error.h"
#include "core/text.h"
#include "tasks/language/language_part.h"

namespace tessera::tasks {
namespace {

using torch::Tensor;

class LabelledTexts final : public data::LabelledSource {
 public:
  LabelledTexts(int64_t size, std::vector<std::string> classes) : size_(size), classes_(std::move(classes)) {}
  int64_t size() const override { return size_; }
  data::RawSample read(int64_t index) const override {
    data::RawSample sample{.name = text("line ", index + 1)};
    sample.annotation.captions = {text("text ", index), text("pair ", index)};
    return sample;
  }
  int64_t label(int64_t index) const override { return index % std::ssize(classes_); }
  const std::vector<std::string>& class_names() const override { return classes_; }
  uint64_t fingerprint() const override { return 0; }
  std::string describe() const override { return "labelled texts"; }

 private:
  int64_t size_;
  std::vector<std::string> classes_;
};

Tokeniser bytes() { return open_task_tokeniser("bytes", 1, TaskSetup(), "test").value(); }

std::shared_ptr<models::LanguageModel> random_model(models::LanguageKind kind) {
  models::LanguageConfig config;
  config.kind = kind, config.vocabulary = bytes().size(), config.dim = 16, config.depth = 2, config.heads = 2;
  config.context = 256;
  auto model = std::make_shared<models::LanguageModel>(config);
  model->to(torch::kFloat64);
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : model->parameters()) parameter.normal_(0, 0.3);
  model->eval();
  return model;
}

TEST(ShotPattern, FillsExamplesAndQuestions) {
  const ShotPattern pattern("Q: {text} / {pair}\nA: {label}\n\n", "--prompt");
  EXPECT_EQ(pattern.example({"{label}", "two"}, "yes"), "Q: {label} / two\nA: yes\n\n");
  EXPECT_EQ(pattern.question({"one"}), "Q: one / \nA: ");
  for (const char* wrong : {"{text}", "{label}", "{label} {text}", "{text} {label} {label}"})
    EXPECT_NE(usage_error_of([&] {
                ShotPattern(wrong, "--prompt");
              }).find("must have {text}, and then {label} once"),
              std::string::npos)
        << wrong;
}

TEST(DrawnShots, AreDistinctAndThoseOfFewerAreTheFirst) {
  for (int64_t question = 0; question < 20; ++question) {
    const std::vector<int64_t> all = drawn_shots(9, 9, 1, question);
    EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()), (std::set<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
    for (int64_t shots = 0; shots < 9; ++shots)
      EXPECT_EQ(drawn_shots(9, shots, 1, question), std::vector<int64_t>(all.begin(), all.begin() + shots));
  }
  EXPECT_NE(drawn_shots(1000, 4, 1, 0), drawn_shots(1000, 4, 1, 1));
  EXPECT_NE(drawn_shots(1000, 4, 1, 0), drawn_shots(1000, 4, 2, 0));
  EXPECT_THROW(drawn_shots(3, 4, 1, 0), Error);
}

// Each label after the prompt in a pass of its own, in every kind of positions; more labels than are scored at a time.
TEST(LabelLikelihoods, AreThoseOfWholePasses) {
  std::vector<std::string> labels = {"a", "ab", "a long label"};
  for (int i = 0; i < 70; ++i) labels.push_back(text("label ", i));
  const std::string prompt = "text one: a\ntext two: ";
  for (const auto kind :
       {models::LanguageKind::gpt2, models::LanguageKind::llama, models::LanguageKind::bloom}) {
    const auto model = random_model(kind);
    const ShotTokens tokens = shot_tokens(bytes(), prompt, labels);
    EXPECT_EQ(tokens.length(), std::ssize(prompt) + 12);
    const Tensor scores = label_likelihoods(*model, tokens, torch::kCPU);
    const torch::NoGradGuard no_grad;
    for (size_t k = 0; k < labels.size(); ++k) {
      const std::vector<int32_t> ids = bytes().encode(prompt + labels[k]);
      const Tensor all = torch::tensor(std::vector<int64_t>(ids.begin(), ids.end())).unsqueeze(0);
      const Tensor log_p = model->forward({.ids = all.slice(1, 0, -1)}).log_softmax(-1);
      const Tensor each = log_p.gather(2, all.slice(1, 1).unsqueeze(2)).flatten();
      EXPECT_NEAR(scores[static_cast<int64_t>(k)].item<double>(),
                  each.slice(0, std::ssize(prompt) - 1).sum().item<double>(), 1e-9)
          << labels[k];
    }
  }
  EXPECT_THROW(shot_tokens(bytes(), prompt, {"a", " "}), Error);
}

TEST(FewShot, AsksAboutEachTextWithExamplesOfTheOtherSet) {
  const LabelledTexts examples(12, {"even", "odd"}), questions(7, {"even", "odd"});
  const FewShot few({.pattern = "{text}: {label}\n", .shots = 3, .context = 256, .seed = 1}, bytes(),
                    examples, questions);
  const ShotTokens tokens = few.tokens(5, 2);
  const std::vector<int32_t> ids(tokens.prompt.begin(), tokens.prompt.end());
  std::string expected;
  for (const int64_t i : drawn_shots(12, 2, 1, 5))
    expected += text("text ", i, i % 2 == 0 ? ": even\n" : ": odd\n");
  EXPECT_EQ(bytes().decode(ids), expected + "text 5: ");
  const auto model = random_model(models::LanguageKind::llama);
  for (const int64_t shots : {0, 3}) {
    int64_t right = 0;
    double loss = 0;
    for (int64_t i = 0; i < 7; ++i) {
      const Tensor scores = label_likelihoods(*model, few.tokens(i, shots), torch::kCPU);
      right += (scores[1] > scores[0]).item<bool>() == (i % 2 == 1);
      loss -= scores.log_softmax(0)[i % 2].item<double>() / 7;
    }
    const ShotScores scores = few.measure(*model, torch::kCPU, shots);
    EXPECT_EQ(scores.samples, 7);
    EXPECT_EQ(scores.right, right);
    EXPECT_NEAR(scores.loss, loss, 1e-12);
  }
}

// Prompts of the most shots are tokenised once, with progress, and equal those without a context.
TEST(FewShot, TokenisesFirst) {
  const LabelledTexts examples(12, {"even", "odd"}), questions(7, {"even", "odd"});
  const auto options = [](int64_t context) {
    return FewShotOptions{.pattern = "{text}: {label}\n", .shots = 3, .context = context, .seed = 1};
  };
  std::vector<int64_t> seen;
  const auto count = [&](int64_t done) {
    seen.push_back(done);
    return done < 7;
  };
  const FewShot any(options(0), bytes(), examples, questions, count);
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(error_of([&] { FewShot(options(256), bytes(), examples, questions, count); }),
            "interrupted after 7 tokenised texts");
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  const FewShot first(options(256), bytes(), examples, questions);
  for (int64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(first.tokens(i, 3).prompt, any.tokens(i, 3).prompt);
    EXPECT_EQ(first.tokens(i, 3).labels, any.tokens(i, 3).labels);
    EXPECT_NE(first.tokens(i, 2).prompt, any.tokens(i, 3).prompt);
  }
}

TEST(FewShot, RefusesByName) {
  const LabelledTexts examples(3, {"even", "odd"}), questions(7, {"even", "odd"}), one(4, {"all"});
  const auto error = [&](int64_t shots, int64_t context, const data::Source& asked) {
    return usage_error_of([&] {
      FewShot({.pattern = "{text}: {label}\n", .shots = shots, .context = context, .seed = 1}, bytes(),
              examples, asked);
    });
  };
  // "text 0: " and "even" are 12 bytes.
  EXPECT_EQ(error(0, 12, questions), "");
  EXPECT_EQ(error(0, 11, questions),
            "--shots 0: the prompt of line 1 has 12 tokens, the model reads 11: fewer examples or shorter "
            "texts fit");
  EXPECT_NE(error(4, 256, questions).find("--shots 4: labelled texts has 3 texts for examples"),
            std::string::npos);
  EXPECT_NE(error(1, 256, one).find("has one class"), std::string::npos);
}

}  // namespace
}  // namespace tessera::tasks
