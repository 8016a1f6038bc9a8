// Tokenisers of published models, read from their own files: text to ids and back.
//
// One pipeline serves all of them: normaliser, added tokens, splitting, a model of pieces (byte-pair merges,
// unigram, WordPiece), a template of special tokens, and a decoder. Every file form becomes one tree in the
// layout of tokenizer.json (`definition()`), so that a weights file can store it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class Value;

// A token's place: the range [start, end) in Unicode code points of the given text. Special tokens of the
// template have {0, 0}.
struct TokenSpan {
  int64_t start = 0, end = 0;
  bool operator==(const TokenSpan&) const = default;
};
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<TokenSpan> offsets;  // one for each id
};

// A text of fixed length.
struct FittedText {
  std::vector<int32_t> ids;  // exactly the requested number
  int64_t used = 0;          // number of text and special tokens; the rest is padding
  int64_t cut = 0;           // tokens of the text that did not fit
};

// The ids of tokens by role; -1 if the tokeniser has none.
struct SpecialTokens {
  int32_t begin = -1, end = -1, pad = -1, unknown = -1;
};

class Tokeniser {
 public:
  // Reads a file by its form: tokenizer.json; vocab.json or merges.txt (with the other one next to it); a
  // SentencePiece tokenizer.model; CLIP's list of merges, bpe_simple_vocab_16e6.txt.gz. In a folder, looks
  // for these names in this order. Throws Error with the file and the cause.
  static Tokeniser load(const std::string& path);
  // Reads the text of definition() or of a tokenizer.json. Errors begin with `where`.
  static Tokeniser from_definition(std::string_view document, const std::string& where);
  // Reads the content of a file in any form that consists of a single file.
  static Tokeniser from_bytes(std::span<const std::byte> bytes, const std::string& where);

  // Returns the ids of a UTF-8 text, with the template's special tokens if `special`. Throws Error if the
  // bytes are not UTF-8. A token written out in the text ("</s>") becomes its id if the file lists it as an
  // added token.
  std::vector<int32_t> encode(std::string_view text, bool special = true) const;
  Encoding encode_with_offsets(std::string_view text, bool special = true) const;
  // Encodes to exactly `length` ids: pads with `pad` after the text, or truncates the text but keeps the
  // template's tokens (CLIP: the last id is the end token). Throws Error if the template alone is longer.
  FittedText fit(std::string_view text, int64_t length, int32_t pad) const;

  // Returns the UTF-8 text of ids; invalid bytes become U+FFFD. Throws Error for an id outside 0 … size() -
  // 1.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  int64_t size() const;                                       // largest id + 1, including added tokens
  std::optional<int32_t> find(std::string_view token) const;  // the id of a token's text
  const std::string& token(int32_t id) const;                 // "" for an unused id
  bool is_special(int32_t id) const;
  const SpecialTokens& special() const;
  const std::string& kind() const;  // "BPE", "Unigram", "WordPiece", "WordLevel"

  // Returns a tokeniser with additional special tokens at the end; those that it already has are unchanged.
  Tokeniser with_tokens(const std::vector<std::string>& added) const;

  // Returns the whole tokeniser as one line of JSON for from_definition().
  std::string definition() const;

  struct State;

 private:
  explicit Tokeniser(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;  // immutable: a Tokeniser is cheap to copy and safe to share
};

// Decodes ids one at a time. The joined results of push() are the text of all ids so far; no result ends
// within a character.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokeniser tokeniser, bool skip_special = true);
  std::string push(int32_t id);
  // Returns the text held back; incomplete characters become U+FFFD.
  std::string finish();

 private:
  Tokeniser tokeniser_;
  bool skip_special_;
  std::vector<int32_t> window_;  // ids since the last safe place
  size_t given_ = 0;             // bytes of the window's text that were already returned
  size_t held_ = 0;              // number of ids in the window at that point
};

// The tokeniser stored in a weights file. Tokeniser::load also reads it from such a file or from a run's
// folder.

// The stored value for a model that reads bytes.
inline constexpr const char* kBytesTokeniser = "bytes";

// Returns the tokeniser stored in a weights file (.safetensors) or in the weights of a run's folder: a
// definition for Tokeniser::from_definition, or kBytesTokeniser. None if the path is neither or has no
// tokeniser.
std::optional<std::string> stored_tokeniser(const std::string& path);

// Loads the stored tokeniser. Throws Error with the path if it has none.
Tokeniser load_stored_tokeniser(const std::string& path);

// The preparation of texts that published text towers need in addition to the file of their tokeniser: SigLIP's
// cleaning (big_vision's canonicalize) and its padding.
struct TextPreparation {
  bool remove_underscores = false;  // each becomes a blank
  bool remove_punctuation = false;  // ASCII's
  bool lower = false;
  bool ends = false;  // the template is the text and the end token, whatever the SentencePiece model contains
  std::string pad = {};  // padding token, "" = the tokeniser's
};

// Reads transformers' tokenizer_config.json; an empty table means that there is none.
TextPreparation preparation_of(const Value& tokenizer_config);

// Returns the encoding that the tokeniser's file sets by `truncation` and `padding`: the text's tokens are cut so that
// max_length holds them and the template's, then padded. Without these settings it is encode_with_offsets(). Throws Error
// for an invalid one.
Encoding encode_as_stored(const Tokeniser& tokeniser, std::string_view text, bool special = true);

// Returns the tokeniser with these steps before its own. Throws Error if it lacks the padding token.
Tokeniser prepared(const Tokeniser& tokeniser, const TextPreparation& preparation);

}  // namespace tessera
