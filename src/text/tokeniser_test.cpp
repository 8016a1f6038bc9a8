#include "text/tokeniser.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "io/files/gzip.h"
#include "text/bpe_trainer.h"
#include "text/conversation.h"
#include "text/text_testing.h"
#include "text/tokeniser_steps.h"
#include "text/unicode.h"

namespace tessera {
namespace {

using namespace std::string_view_literals;  // NOLINT: for a text with a zero

std::string refusal(const Json& tree) {
  try {
    tokeniser_of(tree);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Tokeniser, MergesInTheirOrder) {
  const Tokeniser tokeniser = byte_level();
  std::vector<std::string> names;
  for (const int32_t id : tokeniser.encode("the cat<end>")) names.push_back(tokeniser.token(id));
  EXPECT_EQ(names, (std::vector<std::string>{"the", "Ġcat", "<end>"}));
  EXPECT_EQ(tokeniser.decode(tokeniser.encode("the cat<end>")), "the cat");
  EXPECT_EQ(tokeniser.decode(tokeniser.encode("the cat<end>"), false), "the cat<end>");
  EXPECT_EQ(tokeniser.size(), 262);
  EXPECT_TRUE(tokeniser.is_special(261));
}

// Any text survives a round trip; offsets cover it in order; a stream gives the same text.
TEST(Tokeniser, AnyTextComesBack) {
  const Tokeniser tokeniser = byte_level();
  for (uint64_t sample = 0; sample < 200; ++sample) {
    RandomStream random(7, "text", sample);
    const std::u32string chars = random_chars(random, U"the cat \n<end>é漢😀\u0301\u200D\0x"sv, 40);
    const std::string text = tokens::to_utf8(chars);
    const Encoding encoding = tokeniser.encode_with_offsets(text);
    ASSERT_EQ(tokeniser.decode(encoding.ids, false), text);
    int64_t place = 0;
    StreamDecoder stream(tokeniser, false);
    std::string streamed;
    for (size_t i = 0; i < encoding.ids.size(); ++i) {
      EXPECT_LE(encoding.offsets[i].start, place);
      EXPECT_LE(place, encoding.offsets[i].end);
      place = encoding.offsets[i].end;
      const std::string piece = stream.push(encoding.ids[i]);
      EXPECT_TRUE(is_utf8(piece));
      streamed += piece;
    }
    EXPECT_EQ(streamed + stream.finish(), text);
    EXPECT_EQ(place, std::ssize(chars));
  }
}

TEST(Tokeniser, FitsAndSaysWhatWasCut) {
  Json tree = byte_level_tree();
  tree["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"<end>", 261}}, {"sep", {"<end>", 261}}};
  const Tokeniser tokeniser = tokeniser_of(tree);
  const FittedText padded = tokeniser.fit("the", 5, 0);
  EXPECT_EQ(padded.ids, (std::vector<int32_t>{261, 257, 261, 0, 0}));
  EXPECT_EQ(padded.used, 3);
  EXPECT_EQ(padded.cut, 0);
  const FittedText cut = tokeniser.fit("the the the", 4, 0);
  EXPECT_EQ(cut.ids.front(), 261);
  EXPECT_EQ(cut.ids.back(), 261);
  EXPECT_EQ(cut.cut, 3);  // "Ġ", "the" twice: two of five stay
  EXPECT_THROW(tokeniser.fit("the", 1, 0), Error);
}

TEST(Tokeniser, DamagedTreesAreNamed) {
  const Json good = byte_level_tree();
  EXPECT_EQ(refusal(good), "");
  EXPECT_NE(refusal(Json::object()).find("f.json holds no tokeniser"), std::string::npos);
  Json bad = good;
  bad["model"].erase("merges");
  EXPECT_NE(refusal(bad).find("'merges' not found"), std::string::npos) << refusal(bad);
  bad = good;
  bad["model"]["merges"].push_back("q zz");
  EXPECT_NE(refusal(bad).find("'zz' is not in the vocabulary"), std::string::npos) << refusal(bad);
  bad = good;
  bad["model"]["vocab"]["a"] = -1;
  EXPECT_NE(refusal(bad).find("has the id -1"), std::string::npos);
  bad = good;
  bad["model"]["vocab"]["zz"] = 65;
  EXPECT_NE(refusal(bad).find("both have the id 65"), std::string::npos);
  bad = good;
  bad["added_tokens"][0]["id"] = int64_t{1} << 40;
  EXPECT_NE(refusal(bad).find("'<end>' has the id 1099511627776"), std::string::npos);
  bad = good;
  bad["normalizer"] = {{"type", "Rot13"}};
  EXPECT_NE(refusal(bad).find("normaliser 'Rot13' is not known"), std::string::npos);
  EXPECT_THROW(byte_level().encode("\xFF"), Error);
  EXPECT_THROW(byte_level().decode(std::vector<int32_t>{262}), Error);
}

TEST(Tokeniser, ClipsFileOfMerges) {
  const std::string lines = "\"#version: 0.2\nc a\nca t</w>\n";
  std::vector<std::byte> packed;
  GzipEncoder encoder(
      [&](std::span<const std::byte> part) { packed.insert(packed.end(), part.begin(), part.end()); });
  encoder.write(std::as_bytes(std::span(lines)));
  encoder.finish();
  const Tokeniser tokeniser = Tokeniser::from_bytes(packed, "merges.gz");
  EXPECT_EQ(tokeniser.size(), 516);
  EXPECT_EQ(tokeniser.encode("CAT &amp;  cat"), (std::vector<int32_t>{514, 513, 261, 513, 515}));
  EXPECT_EQ(tokeniser.decode(std::vector<int32_t>{514, 513, 515}), "cat ");
}

TEST(Tokeniser, AccentsAreAllMarksButForBert) {
  Json tree = {{"model",
                {{"type", "WordLevel"},
                 {"unk_token", "?"},
                 {"vocab", {{"?", 0}, {"\u0915", 1}, {"\u0915\u093e", 2}}}}}};
  const std::string text = "\u0915\u093e\u094d";  // a letter, a spacing mark, a mark that takes no space
  tree["normalizer"] = {{"type", "StripAccents"}};
  EXPECT_EQ(tokeniser_of(tree).encode(text, false), (std::vector<int32_t>{1}));
  tree["normalizer"] = {{"type", "BertNormalizer"}, {"strip_accents", true}, {"lowercase", false}};
  EXPECT_EQ(tokeniser_of(tree).encode(text, false), (std::vector<int32_t>{2}));
}

// The words that a normaliser and a splitter produce, and their places.
std::string pieces(const Json& normaliser, const Json& splitter, const std::string& text) {
  std::vector<tokens::AlignedText> parts = {tokens::aligned(tokens::to_code_points(text, "a text"))};
  if (const auto made = tokens::make_normaliser(normaliser, "n")) made->apply(parts[0]);
  if (const auto made = tokens::make_splitter(splitter, "s")) made->apply(parts);
  std::string out;
  for (const tokens::AlignedText& part : parts) {
    out += tokens::to_utf8(part.chars) + "[";
    for (const TokenSpan& span : part.spans)
      out += std::to_string(span.start) + std::to_string(span.end) + " ";
    out.back() = ']';
  }
  return out;
}

TEST(Tokeniser, OtherWaysOfSplitting) {
  EXPECT_EQ(pieces({}, {{"type", "CharDelimiterSplit"}, {"delimiter", "-"}}, "a--bc"), "a[01]bc[34 45]");
  EXPECT_EQ(pieces({}, {{"type", "FixedLength"}, {"length", 2}}, "abc"), "ab[01 12]c[23]");
  EXPECT_THROW(tokens::make_splitter({{"type", "FixedLength"}, {"length", 0}}, "s"), Error);
  EXPECT_THROW(tokens::make_splitter({{"type", "CharDelimiterSplit"}, {"delimiter", ""}}, "s"), Error);
}

// Places follow the library: in sequence, even if characters moved.
TEST(Tokeniser, PlacesBehindNormalForms) {
  EXPECT_EQ(pieces({{"type", "NFD"}}, {}, "q\u0307\u0323x"), "q\u0323\u0307x[01 12 23 34]");
  EXPECT_EQ(pieces({{"type", "NFC"}}, {}, "e\u0301x"), "éx[01 23]");
  EXPECT_EQ(pieces({{"type", "NFKC"}}, {}, "ﬁx"), "fix[01 01 12]");
  EXPECT_EQ(pieces({{"type", "ByteLevel"}}, {}, "é!"), "Ã©![01 01 12]");
  EXPECT_EQ(pieces({{"type", "Replace"}, {"pattern", {{"String", "ab"}}}, {"content", "xyz"}}, {}, "cab"),
            "cxyz[01 23 23 23]");
  const Json bert = {{"type", "BertNormalizer"}, {"lowercase", false}};
  EXPECT_EQ(pieces(bert, {}, "a\x0b\u0085\tb\U000e0080"), "a b\U000e0080[01 34 45 56]");
}

TEST(Tokeniser, AddedTokensStandAloneAndStripBlanks) {
  Json tree = byte_level_tree();
  tree["added_tokens"] = {
      {{"id", 261}, {"content", "cat"}, {"special", true}, {"single_word", true}},
      {{"id", 262}, {"content", "cater"}, {"special", true}, {"single_word", true}},
      {{"id", 263}, {"content", "<m>"}, {"special", true}, {"lstrip", true}, {"rstrip", true}},
      {{"id", 264}, {"content", "  "}, {"special", true}}};
  tree["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", true}, {"add_prefix_space", true}};
  const Tokeniser tokeniser = tokeniser_of(tree);
  EXPECT_EQ(tokeniser.encode("!cat"), (std::vector<int32_t>{'!', 261}));
  // The longest token that matches is rejected, and nothing within it is searched for.
  for (const int32_t id : tokeniser.encode("caters")) EXPECT_LT(id, 261);
  const Encoding encoding = tokeniser.encode_with_offsets("a <m>  ");
  EXPECT_EQ(encoding.ids, (std::vector<int32_t>{'a', 263, 264}));  // two blanks match again
  EXPECT_EQ(encoding.offsets, (std::vector<TokenSpan>{{0, 1}, {2, 5}, {7, 7}}));
}

TEST(Tokeniser, WhitespaceKeepsJoinersWithWords) {
  const Json tree = {{"pre_tokenizer", {{"type", "Whitespace"}}},
                     {"model",
                      {{"type", "WordPiece"},
                       {"unk_token", "?"},
                       {"continuing_subword_prefix", "##"},
                       {"vocab", {{"?", 0}, {"\u200d", 1}, {"!", 2}, {"\u2163", 3}}}}}};
  const Tokeniser tokeniser = tokeniser_of(tree);
  EXPECT_EQ(tokeniser.encode("!\u200d!\u2163!", false), (std::vector<int32_t>{2, 1, 2, 3, 2}));
}

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
  EXPECT_FALSE(several.mismatch);
  std::vector<int32_t> learned;
  for (size_t i = 0; i < several.ids.size(); ++i)
    if (several.labels[i] != kNotLearned) learned.push_back(static_cast<int32_t>(several.labels[i]));
  EXPECT_EQ(tokeniser.decode(learned, false), " cat<end> the cat<end> x<end>");
  EXPECT_THROW(training_text(tokeniser, chat, {{false, "cat"}}), Error);
  EXPECT_THROW(find_template("v2"), Error);
}

TEST(ClipText, Repairs) {
  const auto clean = [](const char32_t* text) { return tokens::to_utf8(tokens::clean_caption(text)); };
  EXPECT_EQ(clean(U"  A\u00A0 \u201CCat\u201D &amp;amp; \uFF21\uFB01\u0007 "), "a \"cat\" & afi");
  EXPECT_EQ(clean(U"sch\u00C3\u00B6n caf\u00C9\u201D"), "schön café\"");
  EXPECT_EQ(clean(U"\u03A3\u0391\u03A3"), "σας");
  EXPECT_EQ(clean(U"&#x41;&bogus;&eacute"), "a&bogus;é");
  EXPECT_EQ(clean(U"P&EACUTE;REZ &AMP; &amp;amp;amp;lt;"), "pérez & <");
  EXPECT_EQ(clean(U"\x1b[31mred\x1b[0m"), "red");
  EXPECT_EQ(clean(U"broken\u0085line \u009f"), "broken…line ÿ");
  EXPECT_EQ(clean(U"\u00F0\u0178\u02DC\u20AC \u00D0\u00BF\u00D1\u20AC"), "😀 пр");
  EXPECT_EQ(clean(U"\u00C3\u00A9\u00C3\u00A8\u00C3 "), "éèà");
  EXPECT_EQ(clean(U"caf\u00E9\u201D\u2026 \u00C9COLE"), "café\"… école");  // none of these is misread
}

TEST(CharacterMap, DamagedBytesAreRefused) {
  EXPECT_THROW(tokens::CharacterMap("", "f"), Error);
  EXPECT_THROW(tokens::CharacterMap(std::string("\x08\0\0\0abcd", 8), "f"), Error);
  EXPECT_THROW(tokens::CharacterMap::of_base64("no base64", "f"), Error);
}

}  // namespace
}  // namespace tessera
