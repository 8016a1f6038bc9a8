#include "text/tokeniser.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/files/io_testing.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// The ids are those of tokenizers 0.23.
TEST(StoredLimits, CutAndPadATextAsTheFileSets) {
  Json tree = {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}},
               {"added_tokens", {{{"id", 3}, {"content", "[PAD]"}, {"special", true}}}}};
  const auto ids = [&](const std::string& text) {
    return encode_as_stored(Tokeniser::from_definition(tree.dump(), "f"), text).ids;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(ids("ababaaab"), (Ids{2, 2, 0, 0, 2}));
  tree["truncation"] = {
      {"direction", "Right"}, {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
  EXPECT_EQ(ids("ababaaab"), (Ids{2, 2, 0}));
  tree["truncation"]["direction"] = "Left";
  EXPECT_EQ(ids("ababaaab"), (Ids{0, 0, 2}));
  tree["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"[PAD]", 3}}, {"sep", {"b", 1}}};
  EXPECT_EQ(ids("ababaaab"), (Ids{3, 2, 1}));
  tree["padding"] = {{"strategy", {{"Fixed", 5}}}, {"direction", "Left"}, {"pad_id", 3}};
  EXPECT_EQ(ids("ababaaab"), (Ids{3, 3, 3, 2, 1}));
  tree["padding"] = {
      {"strategy", "BatchLongest"}, {"direction", "Right"}, {"pad_to_multiple_of", 4}, {"pad_id", 3}};
  EXPECT_EQ(ids("a"), (Ids{3, 0, 1, 3}));
  tree["padding"]["strategy"] = {{"Fixed", int64_t{1} << 40}};
  EXPECT_NE(error_of([&] { ids("a"); }).find("Fixed is 1099511627776, must be 0 to 4194304"),
            std::string::npos);
}

TEST(StoredLimits, PipelinesAndAddedTokensHaveABound) {
  nlohmann::json tree = {
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", nlohmann::json::array()}}}};
  const auto refusal = [&] { return error_of([&] { Tokeniser::from_definition(tree.dump(), "f"); }); };
  EXPECT_EQ(refusal(), "");
  tree["added_tokens"] = {{{"id", 1}, {"content", std::string(2000, 'a')}}};
  EXPECT_EQ(refusal(), "f: the added token '" + std::string(20, 'a') + "...' has more than 1024 bytes");
  tree.erase("added_tokens");
  tree["pre_tokenizer"] = {
      {"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", std::string(70000, 'a')}}}};
  EXPECT_EQ(refusal(), "f: a splitting expression has 70000 characters, must have at most 65536");
  tree.erase("pre_tokenizer");
  const nlohmann::json sixteen = {{"type", "Sequence"},
                                  {"normalizers", std::vector(16, nlohmann::json{{"type", "NFC"}})}};
  tree["normalizer"] = sixteen;
  EXPECT_EQ(refusal(), "");
  tree["normalizer"]["normalizers"] = std::vector(16, sixteen);
  EXPECT_EQ(refusal(), "f: its normalizer has 273 steps, must have at most 256");
  using nlohmann::json;
  const json pieces = json::array({json::array({"<unk>", 0.0}), json::array({std::string(2000, 'a'), -1.0})});
  tree = {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}}}};
  EXPECT_EQ(refusal(),
            "f: the token '" + std::string(20, 'a') + "...' has 2000 bytes, must have at most 1024");
}

}  // namespace
}  // namespace tessera
