// CLIP's list of merges, and GPT-2's pair of files.
#include <unordered_set>

#include "core/error.h"
#include "core/text.h"
#include "io/files/json.h"
#include "text/tokeniser_steps.h"
#include "text/unicode.h"

namespace tessera::tokens {
namespace {

using Json = nlohmann::json;

constexpr size_t kClipMerges = 49152 - 256 - 2;  // further lines of the file are unused
constexpr const char* kClipWords =
    R"(<\|startoftext\|>|<\|endoftext\|>|(?i:'s|'t|'re|'ve|'m|'ll|'d)|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+)";

Json byte_level(bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", use_regex}};
}

// Returns the tree shared by CLIP's own file and the pair of files that others made from it.
Json clip_tree(Json vocabulary, Json merges, const std::string& where) {
  for (const char* name : {"<|startoftext|>", "<|endoftext|>"})
    if (!vocabulary.contains(name)) fail(where, ": the vocabulary of CLIP lacks the token '", name, "'");
  const Json start = vocabulary["<|startoftext|>"], end = vocabulary["<|endoftext|>"];
  Json tree;
  // The special tokens are part of the splitting expression, not searched for before it: "!<|endoftext|>" is
  // plain text to CLIP.
  tree["added_tokens"] = Json::array();
  tree["special_tokens"] = {"<|startoftext|>", "<|endoftext|>"};
  tree["normalizer"] = {{"type", "ClipText"}};
  tree["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", kClipWords}}}, {"behavior", "Removed"}, {"invert", true}},
        byte_level(false)}}};
  tree["post_processor"] = {{"type", "RobertaProcessing"},
                            {"cls", {"<|startoftext|>", start}},
                            {"sep", {"<|endoftext|>", end}},
                            {"trim_offsets", false}};
  tree["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "ByteLevel"}},
                       {{"type", "Replace"}, {"pattern", {{"String", "</w>"}}}, {"content", " "}}}}};
  tree["model"] = {{"type", "BPE"},
                   {"unk_token", "<|endoftext|>"},
                   {"end_of_word_suffix", "</w>"},
                   {"whole_pieces", {"<|startoftext|>", "<|endoftext|>"}},
                   {"vocab", std::move(vocabulary)},
                   {"merges", std::move(merges)}};
  return tree;
}

// Reads the pairs of a list of merges; skips a first line that contains "#version".
Json read_pairs(std::string_view text, size_t most, const std::string& where) {
  if (!is_utf8(text)) fail(where, " is not UTF-8 text");
  Json merges = Json::array();
  size_t line_number = 0;
  for (const std::string& whole : split(text, '\n')) {
    ++line_number;
    const std::string line = whole.ends_with('\r') ? whole.substr(0, whole.size() - 1) : whole;
    if (line.empty() || (line_number == 1 && line.find("#version") != std::string::npos)) continue;
    if (merges.size() == most) break;
    const std::vector<std::string> pair = split(line, ' ');
    if (pair.size() != 2 || pair[0].empty() || pair[1].empty())
      fail(where, " line ", line_number, " is '", printable(line, 40), "', must be two parts of a merge");
    merges.push_back({pair[0], pair[1]});
  }
  return merges;
}

// True if a token looks like a special one: "<|endoftext|>", "<image>", "[PAD]".
bool is_bracketed(std::string_view token) {
  return token.size() > 2 &&
         ((token.front() == '<' && token.back() == '>') || (token.front() == '[' && token.back() == ']'));
}

}  // namespace

Json added_token(const std::string& content, int64_t id, bool special) {
  return {{"id", id},        {"content", content},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", !special}, {"special", special}};
}

Json clip_definition(std::string_view text, const std::string& where) {
  Json merges = read_pairs(text, kClipMerges, where);
  if (merges.empty()) fail(where, " holds no merges");
  Json vocabulary = Json::object();
  int64_t next = 0;
  // CLIP's order: printable bytes first, then those with substitute characters.
  std::vector<std::string> bytes;
  for (size_t round = 0; round < 2; ++round)
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t c = byte_character(static_cast<unsigned char>(byte));
      if ((c >= 256) != (round == 1)) continue;
      bytes.emplace_back();
      append_utf8(c, bytes.back());
    }
  for (const char* suffix : {"", "</w>"})
    for (const std::string& byte : bytes) vocabulary[byte + suffix] = next++;
  for (const Json& merge : merges)
    vocabulary[merge[0].get<std::string>() + merge[1].get<std::string>()] = next++;
  for (const char* name : {"<|startoftext|>", "<|endoftext|>"}) vocabulary[name] = next++;
  return clip_tree(std::move(vocabulary), std::move(merges), where);
}

Json merges_definition(std::string_view vocabulary_text, std::string_view merges_text,
                       const std::string& where) {
  Json vocabulary = parse_json(vocabulary_text, where, {uint64_t{64} << 20, 4, size_t{1} << 21});
  if (!vocabulary.is_object() || vocabulary.empty())
    fail(where, " holds no vocabulary: an object of tokens and ids");
  Json merges = read_pairs(merges_text, vocabulary.size(), "merges.txt next to " + where);
  if (vocabulary.contains("!</w>")) return clip_tree(std::move(vocabulary), std::move(merges), where);
  Json tree;
  tree["added_tokens"] = Json::array();
  std::unordered_set<std::string> made;
  for (const Json& pair : merges) made.insert(pair[0].get<std::string>() + pair[1].get<std::string>());
  for (const auto& [token, id] : vocabulary.items())
    if (is_bracketed(token) && !made.count(token))
      tree["added_tokens"].push_back(added_token(token, json_integer(id, where, "an id"), true));
  tree["normalizer"] = nullptr;
  tree["pre_tokenizer"] = byte_level(true);
  tree["post_processor"] = nullptr;
  tree["decoder"] = byte_level(true);
  tree["model"] = {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", std::move(merges)}};
  return tree;
}

}  // namespace tessera::tokens
