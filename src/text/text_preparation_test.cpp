#include "text/tokeniser.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/value.h"
#include "text/text_testing.h"

namespace tessera {
namespace {

// A tokeniser of bytes with an end token, whose own file pads with something else.
Tokeniser plain() {
  Json tree = byte_level_tree();
  const int64_t next = Tokeniser::from_definition(tree.dump(), "a test").size();
  tree["added_tokens"] = Json::array();
  for (const char* name : {"<pad>", "</s>"})
    tree["added_tokens"].push_back({{"id", next + static_cast<int64_t>(tree["added_tokens"].size())},
                                    {"content", name},
                                    {"special", true}});
  return Tokeniser::from_definition(tree.dump(), "a test");
}

Value config(const char* kind, bool lower) {
  return Value(Value::Table{{"tokenizer_class", kind},
                            {"do_lower_case", lower},
                            {"pad_token", Value(Value::Table{{"content", "</s>"}})}});
}

TEST(TextPreparation, SiglipCleansEndsAndPads) {
  const Tokeniser own = plain(), siglip = prepared(own, preparation_of(config("SiglipTokenizer", true)));
  const int32_t end = *own.find("</s>");
  EXPECT_EQ(siglip.special().pad, end);
  std::vector<int32_t> wanted = own.encode("a red star", false);
  wanted.push_back(end);
  EXPECT_EQ(siglip.encode("A  red, {star}!?"), wanted);
  wanted.resize(32, end);
  EXPECT_EQ(siglip.fit("a red star.", 32, siglip.special().pad).ids, wanted);
  // The definition holds all of it.
  EXPECT_EQ(Tokeniser::from_definition(siglip.definition(), "again").encode("A red star."),
            siglip.encode("a red star"));
  EXPECT_NE(prepared(own, preparation_of(config("SiglipTokenizer", false))).encode("Red"),
            siglip.encode("Red"));
}

TEST(TextPreparation, OtherClassesKeepTheirTexts) {
  const Tokeniser own = plain(), other = prepared(own, preparation_of(config("T5Tokenizer", true)));
  EXPECT_EQ(other.encode("A red, star."), own.encode("A red, star."));
  EXPECT_EQ(other.special().pad, *own.find("</s>"));
  EXPECT_EQ(prepared(own, preparation_of(Value(Value::Table{}))).special().pad, own.special().pad);
  EXPECT_THROW(prepared(own, {.pad = "<nowhere>"}), Error);
}

TEST(TextPreparation, OpenClipsUnderscoresAreBlanks) {
  const Tokeniser own = plain();
  EXPECT_EQ(prepared(own, {.remove_underscores = true, .remove_punctuation = true, .lower = true})
                .encode("Red_star"),
            own.encode("red star"));
}

}  // namespace
}  // namespace tessera
