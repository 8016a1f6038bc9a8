// Converts each file form of a tokeniser into one tree in the layout of tokenizer.json.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace tessera::tokens {

// Reads CLIP's list of merges (bpe_simple_vocab_16e6.txt, unpacked). The vocabulary is 256 bytes, the same at
// the end of a word, the merges, and two special tokens.
nlohmann::json clip_definition(std::string_view merges, const std::string& where);
// Reads vocab.json and merges.txt in GPT-2's form; a vocabulary with "!</w>" is CLIP's.
nlohmann::json merges_definition(std::string_view vocabulary, std::string_view merges,
                                 const std::string& where);
// Reads a SentencePiece tokenizer.model (protobuf), BPE or unigram. Throws Error for damaged bytes.
nlohmann::json sentencepiece_definition(std::span<const std::byte> bytes, const std::string& where);

}  // namespace tessera::tokens
