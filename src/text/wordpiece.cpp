#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "io/files/json.h"
#include "text/piece_model.h"
#include "text/unicode.h"

namespace tessera::tokens {
namespace {

using Json = nlohmann::json;

class WordPiece : public PieceModel {
 public:
  WordPiece(const Json& settings, const std::string& where)
      : PieceModel(where),
        prefix_(settings.value("continuing_subword_prefix", "##")),
        longest_(static_cast<size_t>(json_integer(settings.value("max_input_chars_per_word", Json(100)),
                                                  where, "max_input_chars_per_word"))) {
    for (const auto& [token, id] : settings.at("vocab").items()) {
      vocabulary_.add(token, id, where);
      longest_token_ = std::max(longest_token_, token.size());
    }
    const std::string unknown = settings.value("unk_token", "[UNK]");
    unknown_ = vocabulary_.find(unknown).value_or(-1);
    if (unknown_ < 0) fail(where, ": the unknown token '", printable(unknown), "' is not in the vocabulary");
  }

  void encode(std::u32string_view piece, std::vector<PieceToken>& out) const override {
    const size_t before = out.size();
    bool known = piece.size() <= longest_;
    for (size_t start = 0; known && start < piece.size();) {
      size_t end = start + std::min(piece.size() - start, longest_token_);
      std::string name = (start > 0 ? prefix_ : "") + to_utf8(piece.substr(start, end - start));
      std::optional<int32_t> id;
      while (end > start && !(id = vocabulary_.find(name))) {
        std::string last;
        append_utf8(piece[--end], last);
        name.resize(name.size() - last.size());
      }
      known = id.has_value();
      if (known) out.push_back({*id, static_cast<uint32_t>(start), static_cast<uint32_t>(end)});
      start = end;
    }
    if (known) return;
    out.resize(before);
    out.push_back({unknown_, 0, static_cast<uint32_t>(piece.size())});
  }

 private:
  std::string prefix_;
  size_t longest_, longest_token_ = 0;  // characters of a word that is read, bytes of a token
};

}  // namespace

std::unique_ptr<PieceModel> make_wordpiece(const Json& settings, const std::string& where) {
  return std::make_unique<WordPiece>(settings, where);
}

}  // namespace tessera::tokens
