// The file forms of tokenisers, each turned into one tree in the layout of tokenizer.json.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace tessera::tokens {

// CLIP's list of merges (bpe_simple_vocab_16e6.txt, unpacked): 256 bytes, the same at the end of a word, the
// merges, two special tokens.
nlohmann::json clip_definition(std::string_view merges, const std::string& where);
// vocab.json and merges.txt of GPT-2 and its kind; of CLIP where tokens end in "</w>".
nlohmann::json merges_definition(std::string_view vocabulary, std::string_view merges,
                                 const std::string& where);
// A SentencePiece tokenizer.model (protobuf), BPE or unigram. Throws Error for damaged bytes.
nlohmann::json sentencepiece_definition(std::span<const std::byte> bytes, const std::string& where);

}  // namespace tessera::tokens
