// SentencePiece's tokenizer.model: a protobuf of pieces with scores, and settings of trainer and normaliser.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "text/tokeniser_steps.h"
#include "text/unicode.h"

namespace tessera::tokens {
namespace {

using Json = nlohmann::json;

// One field of a protobuf message: a number, or bytes.
struct Field {
  uint64_t number = 0, value = 0;
  std::string_view bytes;
};

class MessageReader {
 public:
  MessageReader(std::string_view message, const std::string& where) : rest_(message), where_(where) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const uint64_t key = number();
    Field field{key >> 3, 0, {}};
    switch (key & 7) {
      case 0:
        field.value = number();
        break;
      case 1:
        field.value = plain(8);
        break;
      case 2:
        field.bytes = take(number());
        break;
      case 5:
        field.value = plain(4);
        break;
      default:
        damaged();
    }
    if (field.number == 0) damaged();
    return field;
  }

 private:
  [[noreturn]] void damaged() const { fail(where_, " is damaged: it is not a SentencePiece model"); }
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) damaged();
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }
  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }
  uint64_t plain(size_t count) {
    uint64_t value = 0;
    std::memcpy(&value, take(count).data(), count);
    return value;
  }
  std::string_view rest_;
  const std::string& where_;
};

enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Piece {
  std::string text;
  float score = 0;
  Kind kind = Kind::normal;
};

struct Model {
  std::vector<Piece> pieces;
  bool bpe = false, byte_fallback = false, whitespace_as_suffix = false;
  int64_t unknown = 0, begin = 1, end = 2;
  std::string unknown_surface = " \u2047 ";
  std::string character_map;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

Piece read_piece(std::string_view message, const std::string& where) {
  Piece piece;
  MessageReader reader(message, where);
  while (const auto field = reader.next()) {
    if (field->number == 1) piece.text = field->bytes;
    if (field->number == 2) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field->value));
    if (field->number == 3 && field->value >= 1 && field->value <= 6)
      piece.kind = static_cast<Kind>(field->value);
  }
  if (!is_utf8(piece.text)) fail(where, ": a piece of the SentencePiece model is not UTF-8");
  return piece;
}

void read_trainer(std::string_view message, Model& model, const std::string& where) {
  MessageReader reader(message, where);
  while (const auto field = reader.next()) {
    const auto number = static_cast<int64_t>(static_cast<int32_t>(field->value));
    switch (field->number) {
      case 3:
        if (number != 1 && number != 2)
          fail(where, ": the SentencePiece model is of type ", number, "; unigram (1) and bpe (2) are read");
        model.bpe = number == 2;
        break;
      case 24:
        model.whitespace_as_suffix = number != 0;
        break;
      case 35:
        model.byte_fallback = number != 0;
        break;
      case 40:
        model.unknown = number;
        break;
      case 41:
        model.begin = number;
        break;
      case 42:
        model.end = number;
        break;
      case 44:
        model.unknown_surface = field->bytes;
        break;
      default:
        break;
    }
  }
}

void read_normaliser(std::string_view message, Model& model, const std::string& where) {
  MessageReader reader(message, where);
  while (const auto field = reader.next()) switch (field->number) {
      case 2:
        model.character_map = field->bytes;
        break;
      case 3:
        model.add_dummy_prefix = field->value != 0;
        break;
      case 4:
        model.remove_extra_whitespaces = field->value != 0;
        break;
      case 5:
        model.escape_whitespaces = field->value != 0;
        break;
      default:
        break;
    }
}

// Returns every split of a piece into two pieces, ordered by the pieces' scores.
Json merges_of(const Model& model) {
  std::unordered_map<std::string_view, size_t> known;
  std::vector<size_t> order;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    if (model.pieces[i].kind != Kind::normal) continue;
    known.emplace(model.pieces[i].text, i);
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return model.pieces[a].score > model.pieces[b].score; });
  Json merges = Json::array();
  for (const size_t i : order) {
    const std::string_view text = model.pieces[i].text;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) continue;  // within a character
      const std::string_view left = text.substr(0, cut), right = text.substr(cut);
      if (known.count(left) && known.count(right)) merges.push_back({std::string(left), std::string(right)});
    }
  }
  return merges;
}

// Returns the symbols that BPE splits off before it merges. In the unigram model they compete with other
// tokens.
Json added_tokens(const Model& model) {
  Json out = Json::array();
  if (!model.bpe) return out;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.kind != Kind::user_defined || piece.text.empty()) continue;
    out.push_back(added_token(piece.text, static_cast<int64_t>(id), false));
  }
  return out;
}

Json normaliser_of(const Model& model) {
  Json kept = Json::array();
  for (const Piece& piece : model.pieces)
    if (piece.kind == Kind::user_defined) kept.push_back(piece.text);
  Json out = {{"type", "SentencePiece"},
              {"add_dummy_prefix", model.add_dummy_prefix},
              {"remove_extra_whitespaces", model.remove_extra_whitespaces},
              {"escape_whitespaces", model.escape_whitespaces},
              {"treat_whitespace_as_suffix", model.whitespace_as_suffix},
              {"user_defined", kept}};
  if (!model.character_map.empty())
    out["precompiled_charsmap"] = to_base64(std::as_bytes(std::span(model.character_map)));
  return out;
}

// Returns the template that puts the token `id` before a text, or after it.
Json template_of(const std::string& content, int64_t id, bool before) {
  const Json token = {{"SpecialToken", {{"id", content}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  return {{"type", "TemplateProcessing"},
          {"single", before ? Json{token, text} : Json{text, token}},
          {"special_tokens", {{content, {{"ids", Json::array({id})}}}}}};
}

Json bpe_of(const Model& model, int64_t unknown) {
  Json out = {{"type", "BPE"}, {"byte_fallback", model.byte_fallback}, {"fuse_unk", true}};
  out["unk_token"] = model.pieces[static_cast<size_t>(unknown)].text;
  for (size_t id = 0; id < model.pieces.size(); ++id) out["vocab"][model.pieces[id].text] = id;
  out["merges"] = merges_of(model);
  return out;
}

Json unigram_of(const Model& model, int64_t unknown) {
  Json out = {{"type", "Unigram"}, {"byte_fallback", model.byte_fallback}, {"fuse_unk", true}};
  out["unk_id"] = unknown;
  out["not_in_text"] = out["user_defined"] = Json::array();
  out["single_precision"] = true;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.kind == Kind::user_defined)
      out["user_defined"].push_back(id);
    else if (piece.kind != Kind::normal)
      out["not_in_text"].push_back(id);
    out["vocab"].push_back({piece.text, piece.score});
  }
  return out;
}

Json tree_of(const Model& model, const std::string& where) {
  const auto id_or = [&](int64_t id) { return id >= 0 && id < std::ssize(model.pieces) ? id : -1; };
  const int64_t unknown = id_or(model.unknown), begin = id_or(model.begin), end = id_or(model.end);
  if (unknown < 0) fail(where, ": the SentencePiece model has no unknown token");
  const auto text_of = [&](int64_t id) { return model.pieces[static_cast<size_t>(id)].text; };
  Json tree;
  tree["added_tokens"] = added_tokens(model);
  tree["special_tokens"] = Json::array();
  for (const Piece& piece : model.pieces)
    if (piece.kind == Kind::control) tree["special_tokens"].push_back(piece.text);
  tree["normalizer"] = normaliser_of(model);
  tree["pre_tokenizer"] = nullptr;
  // Models with a begin token (LLaMA) prepend it; others (T5) append the end token.
  tree["post_processor"] = nullptr;
  if (const int64_t id = begin >= 0 ? begin : end; id >= 0)
    tree["post_processor"] = template_of(text_of(id), id, begin >= 0);
  tree["decoder"] = {{"type", "SentencePiece"},
                     {"unknown", text_of(unknown)},
                     {"unknown_surface", model.unknown_surface},
                     {"strip_prefix", model.add_dummy_prefix || model.remove_extra_whitespaces},
                     {"strip_all", model.remove_extra_whitespaces}};
  tree["model"] = model.bpe ? bpe_of(model, unknown) : unigram_of(model, unknown);
  return tree;
}

}  // namespace

Json sentencepiece_definition(std::span<const std::byte> bytes, const std::string& where) {
  constexpr size_t kMostPieces = 1 << 21, kLongest = 1 << 10;
  Model model;
  MessageReader reader(as_text(bytes), where);
  while (const auto field = reader.next()) {
    if (field->number == 1) {
      model.pieces.push_back(read_piece(field->bytes, where));
      if (model.pieces.size() > kMostPieces || model.pieces.back().text.size() > kLongest)
        fail(where, ": piece ", model.pieces.size(), " of the SentencePiece model is beyond ", kMostPieces,
             " pieces of ", kLongest, " bytes");
    }
    if (field->number == 2) read_trainer(field->bytes, model, where);
    if (field->number == 3) read_normaliser(field->bytes, model, where);
  }
  if (model.pieces.empty()) fail(where, " holds no pieces: it is not a SentencePiece model");
  if (!is_utf8(model.unknown_surface)) fail(where, ": the text of the unknown token is not UTF-8");
  return tree_of(model, where);
}

}  // namespace tessera::tokens
