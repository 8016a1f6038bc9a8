// Splitters: cut a text into pieces, which the model turns into tokens.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/normaliser.h"

namespace tessera::tokens {

class Splitter {
 public:
  virtual ~Splitter() = default;
  // Replaces the pieces by smaller ones; drops empty pieces.
  virtual void apply(std::vector<AlignedText>& pieces) const = 0;
};

// Makes a splitter from an object of tokenizer.json ("type": "ByteLevel", "Split", "Metaspace",
// "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "CharDelimiterSplit", "FixedLength", "Digits",
// "Punctuation", "Sequence"). Null for a JSON null. Throws Error for another type.
std::unique_ptr<Splitter> make_splitter(const nlohmann::json& settings, const std::string& where);

// Maps a byte to its character in a byte-level vocabulary (Radford et al. 2019), and back (-1: none).
char32_t byte_character(unsigned char byte);
int character_byte(char32_t c);
// Replaces each character by the characters of its bytes; they keep its place.
void to_byte_characters(AlignedText& text);

}  // namespace tessera::tokens
