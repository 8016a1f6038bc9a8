// The steps of a tokeniser around its model, as in tokenizer.json. Normalisers change a text and keep the source
// place of each character. Splitters cut it into pieces, which the model turns into tokens. Decoders turn tokens
// back into text.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/character_trie.h"
#include "text/tokeniser.h"
#include "text/unicode.h"

namespace tessera::tokens {

// The limits of all steps for one text together, whatever rules the tokeniser has.
struct TextLimits {
  uint64_t steps = 0;     // of splitting expressions
  uint64_t inserted = 0;  // characters that normalisers and splitters may still add to the text
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
  // Returns an empty text for the changed characters of this one, to be passed to become(). The limits apply
  // to it.
  AlignedText successor() const;
  void become(AlignedText&& changed);
  // Inserts characters at the start; they get the source position of the first character.
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
// Assigns the places of `text` to `changed` in sequence, even if characters moved.
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
    size_t length = 0;  // number of bytes that it replaces; 0: no match
  };
  // Returns the longest (or shortest) key that is a prefix of `bytes`.
  Hit find(std::string_view bytes, bool longest) const;

 private:
  std::string replacements_;
  std::vector<uint32_t> units_;
};

// CLIP's cleaning of a caption before its merges (Radford et al. 2021, simple_tokenizer).

// Repairs a text, resolves HTML references twice, collapses and trims white space, and lower-cases (with the
// final sigma). The repairs are the steps of ftfy that captions need: UTF-8 read as Windows-1252, ligatures,
// full-width letters, curly quotes, control characters, NFC.
std::u32string clean_caption(std::u32string_view text);

// Resolves all character references of HTML 5 ("&amp;", "&#39;", "&#x27;") as Python's html.unescape; keeps
// the rest. A name may lack its semicolon if HTML allows that, even if other letters follow.
std::u32string resolve_references(std::u32string_view text);

// Like ftfy, resolves only references that end in a semicolon, but also names in capitals ("&EACUTE;").
std::u32string resolve_closed_references(std::u32string_view text);

// Maps Windows-1252 at 0x80 … 0x9F; its five unassigned positions map to themselves.
inline constexpr std::array<char32_t, 32> kWindows1252 = {
    0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
    0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

class Splitter {
 public:
  virtual ~Splitter() = default;
  // Replaces the pieces with smaller ones; drops empty pieces.
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

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Turns tokens into parts of the text, to be joined. The parts of the last step may be bytes.
  virtual std::vector<std::string> apply(std::vector<std::string> tokens) const = 0;
};

// Makes a decoder from an object of tokenizer.json ("type": "ByteLevel", "Replace", "ByteFallback", "Fuse",
// "Strip", "Metaspace", "WordPiece", "BPEDecoder", "Sequence"), or of our type "SentencePiece": "unknown"
// (the token's text), "unknown_surface", "strip_prefix", "strip_all" (leading blanks). Null for a JSON null.
std::unique_ptr<Decoder> make_decoder(const nlohmann::json& settings, const std::string& where);

// Throws Error if a part of the pipeline has more than 256 steps, in sequences of sequences too, since each is a pass
// over the text, or if an added token has more than 1024 bytes.
void check_steps(const nlohmann::json& tree, const std::string& where);

// Converts each file form of a tokeniser into one tree in the layout of tokenizer.json.

// Returns an entry of "added_tokens". Special tokens are found before the text is normalised, others after.
nlohmann::json added_token(const std::string& content, int64_t id, bool special);

// Reads CLIP's list of merges (bpe_simple_vocab_16e6.txt, unpacked). The vocabulary is 256 bytes, the same at
// the end of a word, the merges, and two special tokens.
nlohmann::json clip_definition(std::string_view merges, const std::string& where);
// Reads vocab.json and merges.txt in GPT-2's form; a vocabulary with "!</w>" is CLIP's.
nlohmann::json merges_definition(std::string_view vocabulary, std::string_view merges,
                                 const std::string& where);
// Reads a SentencePiece tokenizer.model (protobuf), BPE or unigram. Throws Error for damaged bytes.
nlohmann::json sentencepiece_definition(std::span<const std::byte> bytes, const std::string& where);

}  // namespace tessera::tokens
