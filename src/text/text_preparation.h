// The preparation of texts that published text towers need in addition to the file of their tokeniser: SigLIP's
// cleaning (big_vision's canonicalize) and its padding.
#pragma once

#include <string>

#include "core/value.h"
#include "text/tokeniser.h"

namespace tessera {

struct TextPreparation {
  bool remove_underscores = false;  // each becomes a blank
  bool remove_punctuation = false;  // ASCII's
  bool lower = false;
  bool ends = false;  // the template is the text and the end token, whatever the SentencePiece model contains
  std::string pad = {};  // padding token, "" = the tokeniser's
};

// Reads transformers' tokenizer_config.json; an empty table means that there is none.
TextPreparation preparation_of(const Value& tokenizer_config);

// Returns the tokeniser with these steps before its own. Throws Error if it lacks the padding token.
Tokeniser prepared(const Tokeniser& tokeniser, const TextPreparation& preparation);

}  // namespace tessera
