// A small tokeniser for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "text/splitter.h"
#include "text/tokeniser.h"
#include "text/unicode.h"

namespace tessera {

// A byte-level tokeniser with all bytes and a few merges.
inline nlohmann::json byte_level_tree() {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    tokens::append_utf8(tokens::byte_character(static_cast<unsigned char>(byte)), name);
    vocabulary[name] = byte;
  }
  nlohmann::json merges = nlohmann::json::array();
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

inline Tokeniser byte_level() { return Tokeniser::from_definition(byte_level_tree().dump(), "a test"); }

}  // namespace tessera
