#include "text/piece_model.h"

#include "core/error.h"
#include "core/text.h"
#include "text/unicode.h"

namespace tessera::tokens {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxId = int64_t{1} << 22;  // limits the memory that a hostile file can claim

// Encodes whole pieces only.
class WordLevel : public PieceModel {
 public:
  WordLevel(const Json& settings, const std::string& where)
      : PieceModel(where), unknown_name_(settings.value("unk_token", "<unk>")) {
    for (const auto& [token, id] : settings.at("vocab").items()) vocabulary_.add(token, id, where);
    unknown_ = vocabulary_.find(unknown_name_).value_or(-1);
  }
  void encode(std::u32string_view piece, std::vector<PieceToken>& out) const override {
    const int32_t id = vocabulary_.find(to_utf8(piece)).value_or(unknown_);
    if (id < 0) fail_unknown(piece, "its unknown token '" + unknown_name_ + "' is not there either");
    out.push_back({id, 0, static_cast<uint32_t>(piece.size())});
  }

 private:
  std::string unknown_name_;
};

}  // namespace

void PieceModel::fail_unknown(std::u32string_view piece, const std::string& why) const {
  fail(where_, ": '", printable(to_utf8(piece), 40), "' is not in the vocabulary, and ", printable(why));
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string& Vocabulary::token(int32_t id) const {
  static const std::string none;
  return id >= 0 && id < size() ? tokens_[static_cast<size_t>(id)] : none;
}

void Vocabulary::add(const std::string& token, const Json& id, const std::string& where) {
  if (!id.is_number_integer())
    fail(where, ": the token '", printable(token), "' has the id ", printable(id.dump(), 40),
         ", must be 0 to ", kMaxId);
  add(token, id.get<int64_t>(), where);  // an integer above int64 becomes negative, so it is refused
}

void Vocabulary::add(const std::string& token, int64_t id, const std::string& where) {
  if (id < 0 || id > kMaxId)
    fail(where, ": the token '", printable(token), "' has the id ", id, ", must be 0 to ", kMaxId);
  const auto number = static_cast<int32_t>(id);
  if (!ids_.emplace(token, number).second)
    fail(where, ": the token '", printable(token), "' occurs twice in the vocabulary");
  if (number >= size()) tokens_.resize(static_cast<size_t>(number) + 1);
  std::string& place = tokens_[static_cast<size_t>(number)];
  if (!place.empty())
    fail(where, ": the tokens '", printable(place), "' and '", printable(token), "' both have the id ", id);
  place = token;
}

std::unique_ptr<PieceModel> make_piece_model(const Json& settings, const std::string& where) {
  // Old files omit the type; their keys imply it.
  const std::string type = settings.contains("type")         ? settings["type"].get<std::string>()
                           : settings.contains("merges")     ? "BPE"
                           : settings.at("vocab").is_array() ? "Unigram"
                           : settings.contains("max_input_chars_per_word") ? "WordPiece"
                                                                           : "WordLevel";
  if (type == "BPE") return make_bpe(settings, where);
  if (type == "Unigram") return make_unigram(settings, where);
  if (type == "WordPiece") return make_wordpiece(settings, where);
  if (type == "WordLevel") return std::make_unique<WordLevel>(settings, where);
  fail(where, ": a tokeniser of type '", printable(type),
       "' is not known: BPE, Unigram, WordPiece, WordLevel");
}

}  // namespace tessera::tokens
