// Plain texts as a source: contents, splits and errors.
#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "io/files/tar.h"

namespace tessera::data {
namespace {

std::unique_ptr<Source> open_texts(const std::string& path, Split split = Split::train, double share = 0) {
  return open_source({.path = "text:" + path, .val_share = share}, split);
}

std::string words(const Source& source, int64_t index) {
  return source.read(index).annotation.captions.at(0);
}

TEST(TextSource, EveryFormHoldsDocuments) {
  const TemporaryFolder folder;
  folder.write("a.txt", "one two");
  folder.write("b/c.md", "three");
  folder.write("b/picture.png", "no text");
  folder.write("lines.jsonl",
               "{\"text\": \"four\"}\n\n{\"captions\": [\"five\", \"six\"]}\n"
               "{\"question\": \"seven?\", \"answers\": [\"eight\", \"8\"]}\n");
  TarWriter shard(folder.path("d.tar.gz"));
  shard.add("x.txt", "nine");
  shard.add("x.png", "no text");
  shard.commit();
  const auto all = open_texts(folder.path());
  std::vector<std::string> read;
  for (int64_t i = 0; i < all->size(); ++i) read.push_back(words(*all, i));
  EXPECT_EQ(read,
            (std::vector<std::string>{"one two", "three", "nine", "four", "five\nsix", "seven?\neight"}));
  EXPECT_EQ(words(*open_texts(folder.path("{a.txt,b}")), 1), "three");
  EXPECT_EQ(all->class_labels(), nullptr);
}

TEST(TextSource, TheEndOfALongDocumentIsForValidation) {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 100; ++i) content += std::to_string(i) + " ";
  folder.write("a.txt", content);
  const auto train = open_texts(folder.path("a.txt"), Split::train, 0.2),
             validation = open_texts(folder.path("a.txt"), Split::validation, 0.2);
  EXPECT_EQ(words(*train, 0) + words(*validation, 0), content);
  EXPECT_NEAR(static_cast<double>(words(*validation, 0).size()), 0.2 * static_cast<double>(content.size()),
              4);
  EXPECT_NE(train->fingerprint(), validation->fingerprint());
}

// A language model that reads cut texts alone never learns an end.
TEST(TextSource, ShortDocumentsAreHeldOutWhole) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += text(R"({"text": "the short text )", i % 80, R"(."})", "\n");
  folder.write("lines.jsonl", lines);
  std::string content;
  for (int i = 0; i < 2000; ++i) content += std::to_string(i) + " ";
  folder.write("long.txt", content);
  const std::string path = folder.path("{long.txt,lines.jsonl}");
  const auto train = open_texts(path, Split::train, 0.1), held_out = open_texts(path, Split::validation, 0.1);
  EXPECT_EQ(words(*train, 0) + words(*held_out, 0), content);
  std::set<std::string> texts[2];
  for (int64_t i = 1; i < train->size(); ++i) texts[0].insert(words(*train, i));
  for (int64_t i = 1; i < held_out->size(); ++i) texts[1].insert(words(*held_out, i));
  EXPECT_EQ(texts[0].size(), 72U);
  EXPECT_EQ(texts[1].size(), 8U);
  EXPECT_EQ(train->size() + held_out->size(), 102);
  for (const std::string& one : texts[1]) {
    EXPECT_FALSE(texts[0].contains(one)) << one;
    EXPECT_TRUE(one.starts_with("the short text ") && one.ends_with(".")) << one;
  }
  // Another path has no effect on the choice.
  folder.write("moved/lines.jsonl", lines);
  folder.write("moved/long.txt", content);
  const auto moved = open_texts(folder.path("moved/{long.txt,lines.jsonl}"), Split::validation, 0.1);
  EXPECT_EQ(moved->fingerprint(), held_out->fingerprint());
}

TEST(TextSource, EqualTextsAreNotDivided) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += "{\"text\": \"the same text.\"}\n";
  folder.write("lines.jsonl", lines);
  EXPECT_EQ(open_texts(folder.path("lines.jsonl"), Split::train, 0.1)->size(), 30);
  EXPECT_EQ(error_of([&] { open_texts(folder.path("lines.jsonl"), Split::validation, 0.1); }, &folder),
            "text:DIR/lines.jsonl has no validation texts: equal texts are not divided, so give others as "
            "data.val_path");
}

TEST(TextSource, TheRoundsOfAConversationStayTogether) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += text(R"({"image": "a.png", "conversations": [{"from": "human", "value": "What is )", i,
                  R"(?"}, {"from": "gpt", "value": "a bell"}, {"from": "human", "value": "And of )", i,
                  R"( what colour?"}, {"from": "gpt", "value": "red"}]})", "\n");
  folder.write("talk.jsonl", lines);
  const auto held_out = open_texts("template=short," + folder.path("talk.jsonl"), Split::validation, 0.1);
  ASSERT_EQ(held_out->size(), 8);
  for (int64_t i = 0; i < 8; i += 2) EXPECT_EQ(held_out->read(i).name, held_out->read(i + 1).name);
}

// The same text as in the question tasks, without the image and the end of an answer: the document ends
// there.
TEST(TextSource, ConversationsInATemplateAreADocumentARound) {
  const TemporaryFolder folder;
  folder.write("talk.jsonl",
               R"({"image": "a.png", "conversations": [{"from": "human", "value": "<image>\nWhat is it?"}, )"
               R"({"from": "gpt", "value": "a bell"}, {"from": "human", "value": "Its colour?"}, )"
               R"({"from": "gpt", "value": "red"}]})"
               "\n{\"text\": \"as it is\"}\n");
  const auto source = open_texts("template=short," + folder.path("talk.jsonl"));
  std::vector<std::string> documents;
  for (int64_t i = 0; i < source->size(); ++i) documents.push_back(words(*source, i));
  EXPECT_EQ(documents, (std::vector<std::string>{"USER: \nWhat is it? ASSISTANT: a bell",
                                                 "USER: Its colour? ASSISTANT: red", "as it is"}));
  EXPECT_TRUE(error_of([&] { open_texts("template=shrt," + folder.path("talk.jsonl")); }, &folder)
                  .starts_with("there is no chat template 'shrt', did you mean 'short'?"));
}

TEST(TextSource, WhatCannotBeReadIsNamed) {
  const TemporaryFolder folder;
  folder.write("bytes.txt", "\xff\xfe");
  EXPECT_EQ(error_of([&] { open_texts(folder.path("bytes.txt")); }, &folder),
            "DIR/bytes.txt is not UTF-8 text");
  folder.write("good.txt", "words");
  const auto some = open_source_with_problems(
      {.path = "text:" + folder.path("{bytes,good}.txt"), .val_share = 0}, Split::train);
  EXPECT_EQ(some->size(), 1);
  ASSERT_EQ(some->problems().size(), 1U);
  EXPECT_TRUE(some->problems()[0].ends_with("bytes.txt is not UTF-8 text"));
  folder.write("bad.jsonl", "{\"words\": 1}\n");
  EXPECT_EQ(error_of([&] { open_texts(folder.path("bad.jsonl")); }, &folder),
            "DIR/bad.jsonl line 1 has neither 'text' nor captions nor a conversation");
  folder.write("list.jsonl", "[1]\n");
  EXPECT_EQ(error_of([&] { open_texts(folder.path("list.jsonl")); }, &folder),
            "DIR/list.jsonl line 1 is no JSON object");
  folder.write("empty/readme.rst", "");
  EXPECT_EQ(
      error_of([&] { open_texts(folder.path("empty")); }, &folder),
      "DIR/empty holds no texts: it must be a .txt, .md or .jsonl file, shards with such, or a folder of "
      "these");
  EXPECT_EQ(
      error_of([&] { open_texts(folder.path("empty/readme.rst")); }, &folder),
      "DIR/empty/readme.rst is no text: it must be a .txt, .md or .jsonl file, shards with such, or a folder "
      "of these");
}

TEST(ConversationsSource, APathNamesTheFileAndItsImages) {
  const TemporaryFolder folder;
  folder.write("ask.jsonl",
               "{\"image\": \"3\", \"question\": \"what?\", \"answers\": [\"a star\"]}\n"
               "{\"image\": \"x/1.png\", \"question\": \"where?\", \"answers\": [\"here\"]}\n");
  const std::string path = "conversations:" + folder.path("ask.jsonl") + ",shapes:train=8,val=8";
  const auto asked = open_source({.val_path = path}, Split::validation);
  ASSERT_EQ(asked->size(), 2);
  const RawSample sample = asked->read(1);
  EXPECT_EQ(sample.name, "shapes validation sample 1");
  EXPECT_EQ(sample.annotation.captions, (std::vector<std::string>{"where?", "here"}));
  EXPECT_EQ(
      error_of([&] { open_source({.path = "conversations:" + folder.path("ask.jsonl")}, Split::train); },
               &folder),
      "data path 'conversations:DIR/ask.jsonl' must be conversations:FILE,IMAGES");
}

// A template's parts in place of one text, as transformers and OpenAI's clients write them; a question with one answer.
TEST(ConversationsSource, TurnsMayHaveParts) {
  const TemporaryFolder folder;
  const auto turns = [&](const std::string& record) {
    folder.write("parts.json", "[" + record + "]");
    const auto source = open_source(
        {.path = "conversations:" + folder.path("parts.json") + ",shapes:train=8,val=8"}, Split::train);
    const RawSample sample = source->read(0);
    EXPECT_EQ(sample.name, "shapes train sample 3") << record;
    return sample.annotation.captions;
  };
  const std::string answer = R"({"role": "assistant", "content": [{"type": "text", "text": "a dog"}]})";
  for (const std::string& record :
       {R"({"images": ["3"], "messages": [{"role": "user", "content": [{"type": "image"}, )"
        R"({"type": "text", "text": "what?"}]}, )" +
            answer + "]}",
        R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "3"}, )"
        R"({"type": "text", "text": "what?"}]}, )" +
            answer + "]}",
        R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "3"}}, )"
        R"({"type": "text", "text": "what?"}]}, )" +
            answer + "]}"})
    EXPECT_EQ(turns(record), (std::vector<std::string>{"<image>\nwhat?", "a dog"})) << record;
  EXPECT_EQ(turns(R"({"image": "3", "question": "what?", "answer": "a dog"})"),
            (std::vector<std::string>{"what?", "a dog"}));
  const std::string audio =
      R"({"image": "3", "messages": [{"role": "user", "content": [{"type": "audio"}]}, )" + answer + "]}";
  EXPECT_EQ(error_of([&] { turns(audio); }, &folder),
            "DIR/parts.json entry 1: a part of 'content' has the type \"audio\", must be text or image");
}

// As LLaVA's mix665k: entries without an image are text alone, and an answer before the first question is left
// out.
TEST(ConversationsSource, EntriesWithoutAnImageAreTextAlone) {
  const TemporaryFolder folder;
  const std::string talk =
      R"("conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "yes"}])";
  const auto open = [&](const std::string& content) {
    folder.write("mixed.json", content);
    return open_source({.path = "conversations:" + folder.path("mixed.json") + ",shapes:train=8,val=8"},
                       Split::train);
  };
  const auto mixed =
      open(R"([{"image": "3", )" + talk + "}, {" + talk + R"(}, {"image": null, )" +
           R"("conversations": [{"from": "gpt", "value": "hi"}, {"from": "human", "value": "a"}, )" +
           R"({"from": "gpt", "value": "b"}]}])");
  ASSERT_EQ(mixed->size(), 3);
  EXPECT_FALSE(mixed->read(0).without_image);
  const RawSample alone = mixed->read(1), last = mixed->read(2);
  EXPECT_TRUE(alone.without_image && last.without_image);
  EXPECT_EQ(alone.name, folder.path("mixed.json") + " entry 2");
  EXPECT_EQ(alone.annotation.captions, (std::vector<std::string>{"<image>?", "yes"}));
  EXPECT_EQ(last.annotation.captions, (std::vector<std::string>{"a", "b"}));
  EXPECT_NE(mixed->describe().find(", 1 about shapes"), std::string::npos) << mixed->describe();
  EXPECT_NE(mixed->describe().find("and 2 without an image"), std::string::npos) << mixed->describe();
  EXPECT_EQ(error_of([&] { open("[{" + talk + "}]"); }, &folder),
            "DIR/mixed.json: none of its 1 conversations has an 'image'");
  EXPECT_NE(error_of([&] { open(R"([{"image": 3, )" + talk + "}]"); }, &folder), "");
}

TEST(TextSource, LinesWithLabelsHaveClasses) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += text(R"({"text": "a text )", i, R"(", "pair": "a pair )", i, R"(", "label": )",
                  i % 2 == 0 ? "\"good\"" : "7", "}\n");
  folder.write("all.jsonl", lines);
  const std::string path = "classes," + folder.path("all.jsonl");
  const auto train = open_texts(path, Split::train, 0.25),
             held_out = open_texts(path, Split::validation, 0.25);
  EXPECT_EQ(train->size(), 30);
  EXPECT_EQ(held_out->size(), 10);
  const ClassLabels& labels = require_labels(*train, "test");
  EXPECT_EQ(labels.class_names(), (std::vector<std::string>{"7", "good"}));
  EXPECT_EQ(class_counts(*held_out), (std::vector<int64_t>{5, 5}));
  for (int64_t i = 0; i < train->size(); ++i) {
    const std::vector<std::string> texts = train->read(i).annotation.captions;
    ASSERT_EQ(texts.size(), 2u);
    const int64_t number = std::stoll(texts[0].substr(7));
    EXPECT_EQ(texts[1], text("a pair ", number));
    EXPECT_EQ(labels.label(i), number % 2 == 0 ? 1 : 0);
  }
}

TEST(TextSource, LinesWithoutALabelAreNamedAndLeftOut) {
  const TemporaryFolder folder;
  folder.write("some.jsonl",
               "{\"text\": \"a\", \"label\": []}\n{\"text\": \"b\", \"label\": \"x\"}\n"
               "{\"text\": \"c\"}\n{\"text\": \"d\", \"label\": \"y\"}\n");
  const auto some = open_source_with_problems(
      {.path = "text:classes," + folder.path("some.jsonl"), .val_share = 0}, Split::train);
  ASSERT_EQ(some->size(), 2);
  EXPECT_EQ(words(*some, 1), "d");
  ASSERT_EQ(some->problems().size(), 2U);
  EXPECT_TRUE(some->problems()[1].ends_with("some.jsonl line 3: 'label' must be a class name or an integer"));
  EXPECT_EQ(error_of([&] { open_texts("classes," + folder.path("some.jsonl")); }, &folder),
            "DIR/some.jsonl line 1: 'label' must be a class name or an integer (and 1 more)");
  folder.write("a.txt", "a document");
  EXPECT_EQ(error_of([&] { open_texts("classes," + folder.path("a.txt")); }, &folder),
            "DIR/a.txt: has no class: it must be a line of a .jsonl file with 'label'");
}

TEST(TextSource, ConversationsInATemplateCanHaveClasses) {
  const TemporaryFolder folder;
  folder.write("talk.jsonl",
               "{\"question\": \"what?\", \"answers\": [\"a bell\"], \"label\": \"thing\"}\n"
               "{\"question\": \"who?\", \"answers\": [\"a cat\"], \"label\": \"animal\"}\n");
  const auto source = open_texts("template=short,classes," + folder.path("talk.jsonl"));
  EXPECT_EQ(words(*source, 0), "USER: what? ASSISTANT: a bell");
  EXPECT_EQ(require_labels(*source, "test").class_names(), (std::vector<std::string>{"animal", "thing"}));
}

}  // namespace
}  // namespace tessera::data
