// Fixtures of the tests of texts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "text/tokeniser.h"
#include "text/tokeniser_steps.h"
#include "text/unicode.h"

namespace tessera {

using Json = nlohmann::json;

// Returns a tree with all bytes and a few merges.
inline Json byte_level_tree() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    tokens::append_utf8(tokens::byte_character(static_cast<unsigned char>(byte)), name);
    vocabulary[name] = byte;
  }
  Json merges = Json::array();
  int next = 256;
  for (const char* pair : {"t h", "th e", "c a", "ca t", "Ġ cat"}) {
    const std::string line = pair;
    const size_t blank = line.find(' ');
    vocabulary[line.substr(0, blank) + line.substr(blank + 1)] = next++;
    merges.push_back(line);
  }
  return {{"added_tokens", {{{"id", next}, {"content", "<end>"}, {"special", true}}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

inline Tokeniser tokeniser_of(const Json& tree) { return Tokeniser::from_definition(tree.dump(), "f.json"); }
inline Tokeniser byte_level() { return tokeniser_of(byte_level_tree()); }

// Returns up to `longest` characters of an alphabet.
inline std::u32string random_chars(RandomStream& random, std::u32string_view alphabet, int64_t longest) {
  std::u32string chars;
  for (int64_t i = random.integer(0, longest); i > 0; --i) chars += alphabet[random.below(alphabet.size())];
  return chars;
}

// Returns a text after a normaliser of this type.
inline tokens::AlignedText normalised(std::u32string_view chars, const char* type) {
  tokens::AlignedText text = tokens::aligned(std::u32string(chars));
  tokens::make_normaliser({{"type", type}}, "n")->apply(text);
  return text;
}

}  // namespace tessera
