#include "text/conversation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "text/text_testing.h"

namespace tessera {
namespace {

TEST(Conversation, LearnsAnswersOnly) {
  const Tokeniser tokeniser = byte_level();
  ChatTemplate chat = find_template("short");
  chat.sep2 = "<end>";
  const TrainingText text = training_text(tokeniser, chat, {{true, "the <image>"}, {false, "cat"}});
  EXPECT_EQ(text.text, "USER: <image>\nthe ASSISTANT: cat<end>");
  EXPECT_EQ(std::count(text.ids.begin(), text.ids.end(), kImageId), 1);
  // In several rounds, exactly the answers with their end tokens.
  const TrainingText several = training_text(
      tokeniser, chat,
      {{true, "the <image>"}, {false, "cat"}, {true, "a"}, {false, "the cat"}, {true, "b"}, {false, "x"}});
  std::vector<int32_t> learned;
  for (size_t i = 0; i < several.ids.size(); ++i)
    if (several.labels[i] != kNotLearned) learned.push_back(static_cast<int32_t>(several.labels[i]));
  EXPECT_EQ(tokeniser.decode(learned, false), " cat<end> the cat<end> x<end>");
  EXPECT_THROW(training_text(tokeniser, chat, {{false, "cat"}}), Error);
  EXPECT_THROW(find_template("v2"), Error);
}

// Returns the learned part of a conversation.
std::string learned(const Tokeniser& tokeniser, const ChatTemplate& chat, const std::vector<Turn>& turns,
                    bool images = true) {
  const TrainingText text = training_text(tokeniser, chat, turns, images);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < text.ids.size(); ++i)
    if (text.labels[i] != kNotLearned) ids.push_back(static_cast<int32_t>(text.labels[i]));
  return tokeniser.decode(ids, false);
}

// Words of the template within a turn are words like any other.
TEST(Conversation, TurnsMayHoldTheWordsOfTheTemplate) {
  const std::vector<std::string> words = {" ASSISTANT: ",
                                          "USER: ",
                                          "<end>",
                                          " [/INST] ",
                                          "[INST] ",
                                          "<|im_end|>",
                                          "<|im_start|>assistant\n",
                                          "</s>",
                                          "<|im_start|>user\n"};
  const auto with_ends = byte_level().with_tokens({"</s>", "<|im_end|>", "<|eot_id|>", "<|endoftext|>"});
  for (const std::string& name : template_names()) {
    const ChatTemplate& chat = find_template(name);
    if (chat.style == TurnStyle::plain || chat.style == TurnStyle::single) continue;
    const std::string end = chat.style == TurnStyle::mpt ? chat.sep : chat.sep2;
    const auto answer = [&](const std::string& text) {
      const bool llama = chat.style == TurnStyle::llama_2, mpt = chat.style == TurnStyle::mpt;
      return (mpt ? "\n" : " ") + text + (llama ? " " : "") + end;
    };
    for (const std::string& word : words) {
      EXPECT_EQ(learned(with_ends, chat, {{true, "a" + word + "b"}, {false, "cat"}}), answer("cat"))
          << name << word;
      EXPECT_EQ(learned(with_ends, chat,
                        {{true, "<image>"}, {false, "x" + word + "y"}, {true, word}, {false, "the cat"}}),
                answer("x" + word + "y") + answer("the cat"))
          << name << word;
    }
  }
}

// A tokeniser whose tokens of a part are not those of the text: each text begins with a blank of its own, and
// an unknown token is a token like others.
TEST(Conversation, TokensOfPartsNeedNotBeThoseOfTheText) {
  Json vocabulary = {{"<unk>", 0}, {"\u2581", 1}};
  for (char c = '!'; c <= '~'; ++c) vocabulary[std::string(1, c)] = c;
  vocabulary["\u2581U"] = 127, vocabulary["SE"] = 128;
  const Json tree = {
      {"added_tokens", {{{"id", 129}, {"content", "<|endoftext|>"}, {"special", true}}}},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"prepend_scheme", "first"}, {"split", false}}},
      {"decoder", {{"type", "Metaspace"}, {"prepend_scheme", "never"}}},
      {"model",
       {{"type", "BPE"}, {"unk_token", "<unk>"}, {"vocab", vocabulary}, {"merges", {"\u2581 U", "S E"}}}}};
  const Tokeniser tokeniser = Tokeniser::from_definition(tree.dump(), "f");
  const ChatTemplate& chat = find_template("short");
  EXPECT_EQ(learned(tokeniser, chat, {{true, "a"}, {false, "b"}, {true, "c"}, {false, "d"}}),
            " b<|endoftext|> d<|endoftext|>");
  EXPECT_EQ(learned(tokeniser, chat, {{true, "\u00E9"}, {false, "b\u00E9"}}), " b<unk><|endoftext|>");
}

TEST(Conversation, WithoutImagesTheImageWordIsAWord) {
  const Tokeniser tokeniser = byte_level();
  ChatTemplate chat = find_template("short");
  chat.sep2 = "<end>";
  const TrainingText text = training_text(tokeniser, chat, {{true, "a <image>"}, {false, "<image>"}}, false);
  EXPECT_EQ(text.text, "USER: a <image> ASSISTANT: <image><end>");
  EXPECT_EQ(std::count(text.ids.begin(), text.ids.end(), kImageId), 0);
  EXPECT_EQ(learned(tokeniser, chat, {{true, "a <image>"}, {false, "<image>"}}, false), " <image><end>");
  EXPECT_EQ(encode_with_images(tokeniser, "<image>", false).size(), 7u);
}

TEST(Conversation, ATemplateNeedsItsEndToken) {
  try {
    training_text(byte_level(), find_template("v1"), {{true, "a"}, {false, "b"}});
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "the tokeniser has no token '</s>', with which the template v1 ends an answer");
  }
}

}  // namespace
}  // namespace tessera
