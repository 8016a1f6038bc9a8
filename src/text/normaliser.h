// What tokenisers do to a text before they split it, with the place that each character came from.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/character_trie.h"
#include "text/tokeniser.h"
#include "text/unicode.h"

namespace tessera::tokens {

// Characters and, for each, the code points of the original text that it stands for.
struct AlignedText {
  std::u32string chars;
  std::vector<TokenSpan> spans;

  void add(char32_t c, TokenSpan span) {
    chars += c;
    spans.push_back(span);
  }
  AlignedText part(size_t start, size_t end) const {
    return {chars.substr(start, end - start),
            {spans.begin() + static_cast<std::ptrdiff_t>(start),
             spans.begin() + static_cast<std::ptrdiff_t>(end)}};
  }
};
// The text as it is; character i came from code point `first` + i.
AlignedText aligned(std::u32string_view chars, int64_t first = 0);

class Normaliser {
 public:
  virtual ~Normaliser() = default;
  virtual void apply(AlignedText& text) const = 0;
};

// From an object of tokenizer.json ("type": "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents",
// "Replace", "Prepend", "Precompiled", "Nmt", "ByteLevel", "BertNormalizer", "Sequence"), and two types of ours:
//   "SentencePiece": precompiled_charsmap (base64), add_dummy_prefix, remove_extra_whitespaces,
//   escape_whitespaces, treat_whitespace_as_suffix, user_defined (words that pass unchanged): what a
//   tokenizer.model says of white space, in its order of steps.
//   "ClipText": what CLIP's own program does to a caption: text repaired, references of HTML resolved, white
//   space to single blanks, lower case.
// Null for a JSON null. Throws Error for another type, with `where` in front.
std::unique_ptr<Normaliser> make_normaliser(const nlohmann::json& settings, const std::string& where);

// A character of a changed text, as the tokenizers library counts: 0 if it stands for the next character of the
// text as it was, -n if also for the n that follow it, above 0 if for none of its own.
struct ChangedCharacter {
  char32_t c;
  int64_t change;
};
// Hands the places of `text` out to `changed` in sequence, whatever moved where.
void change(AlignedText& text, const std::vector<ChangedCharacter>& changed);

// Adds `text` in front, at the place of what it stands before.
void prepend(AlignedText& text, std::u32string_view front);

// A precompiled map of SentencePiece: a trie of byte strings (a double array) and what each becomes. Throws
// Error if the bytes are no such map.
class CharacterMap {
 public:
  CharacterMap(std::string bytes, const std::string& where);
  // As a tokenizer.json holds it.
  static CharacterMap of_base64(std::string_view text, const std::string& where);
  struct Hit {
    std::string_view replacement;
    size_t length = 0;  // bytes that it stands for; 0: no hit
  };
  // The longest (or shortest) key that `bytes` begin with.
  Hit find(std::string_view bytes, bool longest) const;

 private:
  std::string replacements_;
  std::vector<uint32_t> units_;
};

}  // namespace tessera::tokens
