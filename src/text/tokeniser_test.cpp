#include "text/tokeniser.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "io/files/gzip.h"
#include "text/bpe_trainer.h"
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

// The numbers are those of tokenizers 0.23, in the order of the file; a token of the vocabulary keeps its own.
TEST(Tokeniser, AddedTokensHaveConsecutiveNumbers) {
  const auto ids = [](Json vocabulary, const std::vector<std::pair<std::string, int>>& added) {
    Json tree = {{"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", {"a b"}}}},
                 {"added_tokens", Json::array()}};
    for (const auto& [content, id] : added)
      tree["added_tokens"].push_back({{"id", id}, {"content", content}});
    return Tokeniser::from_definition(tree.dump(), "f").encode("ab<x><y>");
  };
  const Json dense = {{"a", 0}, {"b", 1}, {"ab", 2}}, sparse = {{"a", 0}, {"b", 1}, {"ab", 5}};
  EXPECT_EQ(ids(dense, {{"<x>", 10}, {"<y>", 12}}), (std::vector<int32_t>{2, 3, 4}));
  EXPECT_EQ(ids(dense, {{"<y>", 12}, {"<x>", 10}}), (std::vector<int32_t>{2, 4, 3}));
  EXPECT_EQ(ids(sparse, {{"<x>", 6}, {"<y>", 7}}), (std::vector<int32_t>{5, 3, 4}));
  EXPECT_EQ(ids(sparse, {{"ab", 5}, {"<x>", 9}, {"<y>", 7}}), (std::vector<int32_t>{5, 6, 7}));
}

// If a merge is listed twice, its last place counts.
TEST(Tokeniser, TheLastOfEqualMergesCounts) {
  Json tree = {{"model",
                {{"type", "BPE"},
                 {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}}},
                 {"merges", {"a b", "b c", "a b"}}}}};
  EXPECT_EQ(Tokeniser::from_definition(tree.dump(), "f").encode("abc"), (std::vector<int32_t>{0, 4}));
  tree["model"]["merges"].erase(2);
  EXPECT_EQ(Tokeniser::from_definition(tree.dump(), "f").encode("abc"), (std::vector<int32_t>{3, 2}));
}

TEST(Tokeniser, ANumberHasOneToken) {
  Json tree = byte_level_tree();
  tree["added_tokens"].push_back({{"id", 65}, {"content", "zz"}});
  EXPECT_EQ(refusal(tree), "f.json: the added token 'zz' has the id 65 of the token 'A'");
  tree["added_tokens"][1]["id"] = 261;
  EXPECT_EQ(refusal(tree), "f.json: the added token 'zz' has the id 261 of the added token '<end>'");
  tree["added_tokens"][1] = {{"id", 300}, {"content", "the"}};
  EXPECT_EQ(refusal(tree), "f.json: the added token 'the' has the ids 257 and 300");
  tree["added_tokens"][1]["id"] = 257;
  EXPECT_EQ(refusal(tree), "");
}

TEST(Tokeniser, AnUnknownWordWithoutAnUnknownTokenIsNamed) {
  const auto error_of = [](const Json& model, const char* text) -> std::string {
    const Json tree = {{"pre_tokenizer", {{"type", "WhitespaceSplit"}}}, {"model", model}};
    const Tokeniser tokeniser = Tokeniser::from_definition(tree.dump(), "f");
    EXPECT_EQ(tokeniser.encode("a b"), (std::vector<int32_t>{0, 1}));
    try {
      tokeniser.encode(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const Json words = {{"type", "WordLevel"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"unk_token", "<unk>"}};
  EXPECT_EQ(error_of(words, "a z b"),
            "f: 'z' is not in the vocabulary, and its unknown token '<unk>' is not there either");
  const Json unigram = {{"type", "Unigram"},
                        {"vocab", Json::array({Json::array({"a", -1}), Json::array({"b", -2})})},
                        {"unk_id", nullptr}};
  EXPECT_EQ(error_of(unigram, "ab zy"), "f: 'zy' is not in the vocabulary, and it has no unk_id");
}

// Rules that multiply the length of a text meet a limit, wherever they are.
TEST(Tokeniser, RulesThatMultiplyATextEnd) {
  const Json ten = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}};
  const auto times = [](const char* name, const Json& step, size_t count) {
    return Json{{"type", "Sequence"}, {name, std::vector<Json>(count, step)}};
  };
  const auto error_of = [](const Json& tree, bool decodes) -> std::string {
    try {
      const Tokeniser tokeniser = Tokeniser::from_definition(tree.dump(), "f");
      if (decodes)
        tokeniser.decode(std::vector<int32_t>{65});
      else
        tokeniser.encode("a\u00E9<end>a\u00E9");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string longer = "too long";
  Json tree = byte_level_tree();
  tree["normalizer"] = times("normalizers", ten, 10);
  EXPECT_NE(error_of(tree, false).find(longer), std::string::npos) << error_of(tree, false);
  tree["normalizer"] = times("normalizers", ten, 4);
  EXPECT_EQ(error_of(tree, false), "");
  tree["normalizer"] = times("normalizers", {{"type", "ByteLevel"}}, 40);
  EXPECT_NE(error_of(tree, false).find(longer), std::string::npos) << error_of(tree, false);
  const std::string front(1 << 19, 'x');
  tree["normalizer"] = times("normalizers", {{"type", "Prepend"}, {"prepend", front}}, 4);
  EXPECT_NE(error_of(tree, false).find(longer), std::string::npos) << error_of(tree, false);
  tree["normalizer"] = nullptr;
  tree["pre_tokenizer"] =
      times("pretokenizers", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}, 40);
  EXPECT_NE(error_of(tree, false).find(longer), std::string::npos) << error_of(tree, false);
  tree["pre_tokenizer"] = nullptr;
  tree["decoder"] = times("decoders", ten, 10);
  tree["decoder"]["decoders"][0]["pattern"]["String"] = "A";
  EXPECT_NE(error_of(tree, true).find("its decoder makes these tokens too long"), std::string::npos)
      << error_of(tree, true);
  // A token that is searched for in the changed text is changed itself.
  tree = byte_level_tree();
  tree["normalizer"] = times("normalizers", ten, 10);
  tree["added_tokens"].push_back({{"id", 262}, {"content", "ab"}, {"normalized", true}});
  EXPECT_NE(error_of(tree, false).find(longer), std::string::npos) << error_of(tree, false);
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
  EXPECT_NE(refusal(bad).find("'<end>' is 1099511627776, must be a whole number from 0 to"),
            std::string::npos)
      << refusal(bad);
  bad = good;
  bad["normalizer"] = {{"type", "Rot13"}};
  EXPECT_NE(refusal(bad).find("normaliser 'Rot13' is not known"), std::string::npos);
  EXPECT_THROW(byte_level().encode("\xFF"), Error);
  EXPECT_THROW(byte_level().decode(std::vector<int32_t>{262}), Error);
}

// A number such as 6.7e50 has no integer, and 2^32 + 5 must not become 5.
TEST(Tokeniser, NumbersThatAreNoIntegersAreRefused) {
  Json good = byte_level_tree();
  good["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "s"}}}}}},
                            {"special_tokens", {{"s", {{"ids", {1}}}}}}};
  good["decoder"] = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  good["pre_tokenizer"] = {{"type", "FixedLength"}, {"length", 2}};
  ASSERT_EQ(refusal(good), "");
  const Json unigram =
      Json::parse(R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1]],
      "user_defined": [1], "not_in_text": [1]}})");
  const Json wordpiece = Json::parse(R"({"model": {"type": "WordPiece", "vocab": {"[UNK]": 0},
      "max_input_chars_per_word": 9}, "post_processor": {"type": "BertProcessing", "cls": ["a", 0], "sep": ["b", 0]}})");
  const std::vector<std::pair<Json, const char*>> places = {{good, "/model/vocab/a"},
                                                            {good, "/added_tokens/0/id"},
                                                            {good, "/post_processor/special_tokens/s/ids/0"},
                                                            {good, "/decoder/start"},
                                                            {good, "/decoder/stop"},
                                                            {good, "/pre_tokenizer/length"},
                                                            {unigram, "/model/unk_id"},
                                                            {unigram, "/model/user_defined/0"},
                                                            {unigram, "/model/not_in_text/0"},
                                                            {wordpiece, "/model/max_input_chars_per_word"},
                                                            {wordpiece, "/model/vocab/[UNK]"},
                                                            {wordpiece, "/post_processor/cls/1"},
                                                            {wordpiece, "/post_processor/sep/1"}};
  for (const auto& [tree, place] : places) {
    EXPECT_EQ(refusal(tree), "");
    for (const Json& number : {Json(6.7e50), Json(-1e30), Json(0.5), Json(~uint64_t{0}), Json(-3)}) {
      Json bad = tree;
      bad[Json::json_pointer(place)] = number;
      EXPECT_NE(refusal(bad).find(", must be "), std::string::npos) << place << number << refusal(bad);
    }
  }
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
      {{"id", 261}, {"content", "dog"}, {"special", true}, {"single_word", true}},
      {{"id", 262}, {"content", "dogger"}, {"special", true}, {"single_word", true}},
      {{"id", 263}, {"content", "<m>"}, {"special", true}, {"lstrip", true}, {"rstrip", true}},
      {{"id", 264}, {"content", "  "}, {"special", true}}};
  tree["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", true}, {"add_prefix_space", true}};
  const Tokeniser tokeniser = tokeniser_of(tree);
  EXPECT_EQ(tokeniser.encode("!dog"), (std::vector<int32_t>{'!', 261}));
  // The longest token that matches is rejected, and nothing within it is searched for.
  for (const int32_t id : tokeniser.encode("doggers")) EXPECT_LT(id, 261);
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

TEST(CharacterMap, DamagedBytesAreRefused) {
  EXPECT_THROW(tokens::CharacterMap("", "f"), Error);
  EXPECT_THROW(tokens::CharacterMap(std::string("\x08\0\0\0abcd", 8), "f"), Error);
  EXPECT_THROW(tokens::CharacterMap::of_base64("no base64", "f"), Error);
}

}  // namespace
}  // namespace tessera
