// Text as numbers and back: the tokenisers of published models, read from the files that they come in.
//
// One pipeline serves all of them: normaliser, added tokens, splitting, a model of pieces (byte-pair merges,
// unigram, WordPiece), a template of special tokens, and a decoder. Whatever the file form, a tokeniser is
// held as one tree in the layout of tokenizer.json (`definition()`), so that it travels inside a weights
// file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// What a piece of text became. Offsets count Unicode code points of the text that was given: token i stands
// for [offsets[i].start, offsets[i].end). Special tokens of the template have {0, 0}.
struct TokenSpan {
  int64_t start = 0, end = 0;
  bool operator==(const TokenSpan&) const = default;
};
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<TokenSpan> offsets;  // as many as ids
};

// A text brought to a fixed length.
struct FittedText {
  std::vector<int32_t> ids;  // exactly as many as asked for
  int64_t used = 0;          // how many of them are text and special tokens; the rest is padding
  int64_t cut = 0;           // tokens of the text for which there was no place
};

// The ids of tokens that programs ask for by their role; -1 where the tokeniser has none.
struct SpecialTokens {
  int32_t begin = -1, end = -1, pad = -1, unknown = -1;
};

class Tokeniser {
 public:
  // Reads a file by its form: tokenizer.json; vocab.json or merges.txt (the other one beside it); a
  // SentencePiece tokenizer.model; CLIP's list of merges, bpe_simple_vocab_16e6.txt.gz. A folder is looked
  // through for these names in this order. Throws Error naming the file and what is wrong with it.
  static Tokeniser load(const std::string& path);
  // From the text that definition() gives, or that a tokenizer.json holds. `where` stands in errors.
  static Tokeniser from_definition(std::string_view document, const std::string& where);
  // From the bytes of a file of any single-file form.
  static Tokeniser from_bytes(std::span<const std::byte> bytes, const std::string& where);

  // The ids of a UTF-8 text, with the special tokens of the template if `special`. Throws Error if the bytes
  // are no UTF-8. A token that is written out in the text ("</s>") becomes its id where the file says so.
  std::vector<int32_t> encode(std::string_view text, bool special = true) const;
  Encoding encode_with_offsets(std::string_view text, bool special = true) const;
  // encode() brought to `length` ids: padded with `pad` behind the text, or cut so that the template's tokens
  // remain (CLIP: the last id is the end token). Throws Error if the template alone is longer.
  FittedText fit(std::string_view text, int64_t length, int32_t pad) const;

  // UTF-8 text of ids; bytes that are no UTF-8 become U+FFFD. Throws Error for an id outside 0 … size() - 1.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  int64_t size() const;                                       // largest id + 1, added tokens included
  std::optional<int32_t> find(std::string_view token) const;  // by its text in the vocabulary
  const std::string& token(int32_t id) const;                 // "" for an id that no token has
  bool is_special(int32_t id) const;
  const SpecialTokens& special() const;
  const std::string& kind() const;  // "BPE", "Unigram", "WordPiece", "WordLevel"

  // With these special tokens behind its own; those that it has already stay what they are.
  Tokeniser with_tokens(const std::vector<std::string>& added) const;

  // The whole tokeniser as one line of JSON, which from_definition() reads.
  std::string definition() const;

  struct State;

 private:
  explicit Tokeniser(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;  // immutable: a Tokeniser is cheap to copy and safe to share
};

// Decodes ids as they come. What push() gives, joined, is the text of all ids so far, and no piece of it ends
// within a character.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokeniser tokeniser, bool skip_special = true);
  std::string push(int32_t id);
  // What was held back; bytes that never became a character are U+FFFD.
  std::string finish();

 private:
  Tokeniser tokeniser_;
  bool skip_special_;
  std::vector<int32_t> window_;  // ids from the last safe place on
  size_t given_ = 0;             // bytes of the window's text that were given out
  size_t held_ = 0;              // ids of the window when that was
};

}  // namespace tessera
