// Normalisers: change a text before it is split, and keep the source place of each character.
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

// The limits of all steps of one text together, whatever the rules of the tokeniser are.
struct TextLimits {
  uint64_t steps = 0;     // of splitting expressions
  uint64_t inserted = 0;  // characters that normalisers and splitters add to the text
  const std::string& where;

  // `where` starts error messages; it must outlive the limits.
  TextLimits(size_t characters, const std::string& where);
  [[noreturn]] void fail_too_long() const;
};

// Characters and, for each, the range of code points of the original text that it came from.
struct AlignedText {
  std::u32string chars;
  std::vector<TokenSpan> spans;
  TextLimits* limits = nullptr;  // of the whole text; null: none
  size_t most = ~size_t{0};      // characters that it may have

  void add(char32_t c, TokenSpan span) {
    if (chars.size() == most) limits->fail_too_long();
    chars += c;
    spans.push_back(span);
  }
  AlignedText part(size_t start, size_t end) const {
    return {chars.substr(start, end - start),
            {spans.begin() + static_cast<std::ptrdiff_t>(start),
             spans.begin() + static_cast<std::ptrdiff_t>(end)},
            limits};
  }
  // Returns an empty text for the changed characters of this one, to be given to become(). The limits apply
  // to it.
  AlignedText successor() const;
  void become(AlignedText&& changed);
  // Inserts characters at the start; they get the place of the first one.
  void prepend(std::u32string_view front);
};
// Returns the text unchanged; character i came from code point `first` + i.
AlignedText aligned(std::u32string chars, int64_t first = 0);

class Normaliser {
 public:
  virtual ~Normaliser() = default;
  virtual void apply(AlignedText& text) const = 0;
};

// Makes a normaliser from an object of tokenizer.json ("type": "NFC", "NFD", "NFKC", "NFKD", "Lowercase",
// "Strip", "StripAccents", "Replace", "Prepend", "Precompiled", "Nmt", "ByteLevel", "BertNormalizer",
// "Sequence"), or of two types of our own:
//   "SentencePiece": precompiled_charsmap (base64), add_dummy_prefix, remove_extra_whitespaces,
//   escape_whitespaces, treat_whitespace_as_suffix, user_defined (words that pass unchanged): the settings of
//   a tokenizer.model, applied in its order of steps.
//   "ClipText": CLIP's cleaning of a caption (clean_caption).
// Null for a JSON null. Throws Error for another type; the message begins with `where`.
std::unique_ptr<Normaliser> make_normaliser(const nlohmann::json& settings, const std::string& where);

// A character of a changed text, counted as in the tokenizers library. `change` is 0 if it replaces the next
// character of the old text, -n if it also replaces the n after it, above 0 if it was inserted.
struct ChangedCharacter {
  char32_t c;
  int64_t change;
};
// Gives `changed` the places of `text` in sequence, even if characters moved.
void change(AlignedText& text, const std::vector<ChangedCharacter>& changed);

// SentencePiece's precompiled map: a trie of byte strings (a double array) and their replacements. Throws
// Error if the bytes are not such a map.
class CharacterMap {
 public:
  CharacterMap(std::string bytes, const std::string& where);
  // Reads the form in a tokenizer.json.
  static CharacterMap of_base64(std::string_view text, const std::string& where);
  struct Hit {
    std::string_view replacement;
    size_t length = 0;  // bytes that it replaces; 0: no hit
  };
  // Returns the longest (or shortest) key that `bytes` begin with.
  Hit find(std::string_view bytes, bool longest) const;

 private:
  std::string replacements_;
  std::vector<uint32_t> units_;
};

}  // namespace tessera::tokens
