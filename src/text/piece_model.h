// Models of tokenisers, which turn a piece of text into ids of a vocabulary.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::tokens {

// A token and its range of characters in the piece.
struct PieceToken {
  int32_t id;
  uint32_t start, end;
};

// Tokens by text and by id. Ids may have gaps (token "").
class Vocabulary {
 public:
  std::optional<int32_t> find(std::string_view token) const;
  const std::string& token(int32_t id) const;
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }  // largest id + 1
  size_t count() const { return ids_.size(); }
  // Throws Error if the id is negative, above 2^22 or already used.
  void add(const std::string& token, int64_t id, const std::string& where);
  void add(const std::string& token, const nlohmann::json& id, const std::string& where);

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view key) const { return std::hash<std::string_view>()(key); }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> tokens_;
};

class PieceModel {
 public:
  virtual ~PieceModel() = default;
  // Appends the tokens of a piece, which is not empty. Throws Error if a part of it has no token and the
  // model has no unknown token. BPE skips such a part instead, as published.
  virtual void encode(std::u32string_view piece, std::vector<PieceToken>& out) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  int32_t unknown() const { return unknown_; }  // id, or -1

 protected:
  explicit PieceModel(const std::string& where) : where_(where) {}
  // Throws the error of a piece without a token.
  [[noreturn]] void fail_unknown(std::u32string_view piece, const std::string& why) const;

  std::string where_;
  Vocabulary vocabulary_;
  int32_t unknown_ = -1;
};

// Makes a model from the "model" of a tokenizer.json. Throws Error with `where`: unknown type, merges of
// tokens outside the vocabulary, an unknown token outside it, duplicate ids.
std::unique_ptr<PieceModel> make_piece_model(const nlohmann::json& settings, const std::string& where);

// Byte-pair encoding (Sennrich et al. 2016): merges characters in the order in which merges were learned.
// "vocab", "merges", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges", "continuing_subword_prefix",
// "end_of_word_suffix"; and our own "whole_pieces": tokens that are never split.
std::unique_ptr<PieceModel> make_bpe(const nlohmann::json& settings, const std::string& where);
// The unigram model (Kudo 2018): the tokens with the largest sum of scores (Viterbi). "vocab" (pairs [token,
// score]), "unk_id", "byte_fallback"; and our own "user_defined": ids that take precedence.
std::unique_ptr<PieceModel> make_unigram(const nlohmann::json& settings, const std::string& where);
// WordPiece (Schuster & Nakajima 2012, as in BERT): repeatedly takes the longest token at the left. "vocab",
// "unk_token", "continuing_subword_prefix", "max_input_chars_per_word".
std::unique_ptr<PieceModel> make_wordpiece(const nlohmann::json& settings, const std::string& where);

}  // namespace tessera::tokens
