// Conversations about images with a model that only counts how its tower is used.
#include <gtest/gtest.h>

#include "answer/chat.h"
#include "core/core_testing.h"
#include "text/bpe_trainer.h"

namespace tessera::answer {
namespace {

constexpr int64_t kPlaces = 4, kContext = 64;

struct Reader {
  std::vector<int64_t> batches;  // images of each call of the tower
  train::OpenedLanguage opened;

  Reader() {
    BpeTrainer trainer({.vocabulary = 270});
    trainer.add("a cat sat on the mat, the cat ate the rat");
    opened.tokeniser = Tokeniser::from_definition(trainer.learn(), "a test");
    opened.vocabulary = opened.tokeniser->size() + 1;
    opened.context = kContext;
    opened.language = std::make_shared<models::LanguageModel>(models::LanguageConfig{
        .vocabulary = opened.vocabulary, .dim = 16, .depth = 1, .heads = 2, .context = kContext});
    opened.language->eval();
    opened.images = models::ImageReading{
        .image_token = opened.vocabulary - 1,
        .features =
            [this](const torch::Tensor& images) {
              batches.push_back(images.size(0));
              return torch::zeros({images.size(0), kPlaces, 16});
            },
        .begin = [this](const torch::Tensor&, const torch::Tensor&,
                        int64_t beams) { return models::next_token_model(*opened.language, {}, beams); }};
  }
  Conversation about(int64_t images) const {
    ChatOptions options;
    options.max_tokens = 2, options.raw = true;
    return {options, opened, torch::zeros({images, 3, 8, 8})};
  }
};

TEST(Conversation, ATowerRunsOnceAndOnlyIfTheQuestionFits) {
  const ChatScope scope("fp32");
  Reader reader;
  std::string longest;
  for (int i = 0; i < 80; ++i) longest += "z ";
  Conversation conversation = reader.about(3);
  EXPECT_NE(usage_error_of([&] { conversation.answer(longest, {}); }).find("the model reads 64"),
            std::string::npos);
  EXPECT_TRUE(reader.batches.empty());
  conversation.answer("the cat", {});
  conversation.answer("the rat", {});
  EXPECT_EQ(reader.batches, (std::vector<int64_t>{1, 2}));

  reader.batches.clear();
  Conversation many = reader.about(kContext / kPlaces);
  EXPECT_NE(usage_error_of([&] { many.answer("the cat", {}); }).find("tokens"), std::string::npos);
  EXPECT_EQ(reader.batches, std::vector<int64_t>{1});
}

// The word in an answer is no image: it would have no features.
TEST(Conversation, AnswersMayHoldTheWordOfAnImage) {
  const ChatScope scope("fp32");
  Reader reader;
  Conversation conversation = reader.about(1);
  conversation.replay({{true, "the cat"}, {false, "an <image>, <ima<image>ge>"}});
  EXPECT_GT(conversation.answer("the rat", {}).prompt_tokens, kPlaces);
}

}  // namespace
}  // namespace tessera::answer
