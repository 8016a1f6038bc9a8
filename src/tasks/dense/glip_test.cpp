// Task glip: the prompt of its classes. Its head and losses are tested in models/detection.
#include "tasks/dense/glip.h"

#include <gtest/gtest.h>

#include "core/core_testing.h"
#include "core/text.h"
#include "models/base/family.h"
#include "tasks/base/text_input.h"
#include "tasks/dense/object_finder.h"

namespace tessera::tasks {
namespace {

std::unique_ptr<Task> glip_task(const std::string& settings) {
  TaskSetup setup;
  setup.settings = glip_kind().resolve(
      parse_toml(text("width = 8\ninner = 8\nheads = 2\nlayers = 1\n",
                      "text = {dim = 8, depth = 1, heads = 2, context = 200}\n", settings),
                 "task"));
  setup.model = models::resolve_model(
      "vit",
      parse_toml("dim = 16\ndepth = 2\nheads = 2\npatch_size = 8\nimage_size = 32\nclasses = 0", "model"));
  setup.seed = 1;
  setup.preprocess.size = 32;
  setup.sides = {32};
  data::SourceConfig config;
  config.path = "shapes:task=detect,train=8,val=8,size=64";
  setup.train = data::open_source(config, data::Split::train);
  setup.validation = data::open_source(config, data::Split::validation);
  return glip_kind().make(setup);
}

TEST(GlipPrompt, APeriodEndsEachName) {
  const GlipPrompt prompt = glip_prompt({"traffic light", "caf\xc3\xa9", "cat"}, {2, 0, 1});
  EXPECT_EQ(prompt.words, "cat. traffic light. caf\xc3\xa9.");
  EXPECT_EQ(prompt.places, (std::vector<TokenSpan>{{5, 18}, {20, 24}, {0, 3}}));
  EXPECT_EQ(glip_prompt({"cat"}, {0}).words, "cat.");
}

// The names as one text with start and end, one token for each byte.
TEST(GlipTask, NamesThatExceedThePromptAreRefused) {
  int64_t bytes = 1;  // of "name." and a space for each name, without the first space
  const auto task = glip_task("prompt = 200");
  for (const std::string& name : dynamic_cast<ObjectFinder&>(*task).object_classes())
    bytes += std::ssize(name) + 2;
  EXPECT_NO_THROW(glip_task(text("prompt = ", bytes)));
  EXPECT_NE(usage_error_of([&] {
              glip_task(text("prompt = ", bytes - 1));
            }).find(text(" tokens, more than task.prompt = ", bytes - 1)),
            std::string::npos);
  EXPECT_NE(usage_error_of([&] {
              dynamic_cast<ObjectFinder&>(*task).set_classes({std::string(250, 'a'), "b"});
            }).find("more than task.prompt = 200"),
            std::string::npos);
}

// Tokens have the characters of the text in their order; special tokens have none.
TEST(TextSpans, AreTheCharactersOfEachToken) {
  const TextInput bytes("bytes", {});
  const std::vector<TokenSpan> spans = bytes.spans("a\xc3\xa9.");
  EXPECT_EQ(spans, (std::vector<TokenSpan>{{0, 1}, {1, 2}, {1, 2}, {2, 3}}));
  data::SourceConfig config;
  config.path = "shapes:task=text,train=40,val=8,size=32";
  const auto captions = data::open_source(config, data::Split::train);
  const TextInput learned("learned", {}, captions.get());
  for (int64_t i = 0; i < 10; ++i) {
    const std::string caption = captions->read(i).annotation.captions.at(0);
    const std::vector<TokenSpan> own = learned.spans(caption);
    int64_t tokens = 0;
    for (const int32_t id : learned.fit(caption, 200, "test")) tokens += id != learned.pad();
    EXPECT_EQ(std::ssize(own) + 2, tokens);
    EXPECT_EQ(own.back().end, std::ssize(caption));
    for (size_t k = 1; k < own.size(); ++k) EXPECT_LE(own[k - 1].end, own[k].end);
  }
}

}  // namespace
}  // namespace tessera::tasks
