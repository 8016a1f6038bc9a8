#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "io/files/json.h"
#include "text/character_trie.h"
#include "text/piece_model.h"
#include "text/unicode.h"

namespace tessera::tokens {
namespace {

using Json = nlohmann::json;

constexpr double kUnknownPenalty = 10;  // below the worst token

std::set<int64_t> ids_in(const Json& settings, const char* key, const std::string& where) {
  std::set<int64_t> ids;
  if (const auto found = settings.find(key); found != settings.end())
    for (const Json& id : *found) ids.insert(json_integer(id, where, key));
  return ids;
}

constexpr size_t kLongestPiece = 1024;  // each character of a text may begin a walk as long as that

class Unigram : public PieceModel {
 public:
  Unigram(const Json& settings, const std::string& where)
      : PieceModel(where),
        fuse_unknown_(settings.value("fuse_unk", true)),
        single_precision_(settings.value("single_precision", false)) {
    double lowest = std::numeric_limits<double>::infinity();
    const Json& vocabulary = settings.at("vocab");
    const std::set<int64_t> fixed = ids_in(settings, "user_defined", where);
    const std::set<int64_t> left_out = ids_in(settings, "not_in_text", where);  // controls and bytes
    for (int64_t id = 0; id < std::ssize(vocabulary); ++id) {
      const Json& entry = vocabulary[static_cast<size_t>(id)];
      const std::string piece = entry.at(0).get<std::string>();
      if (piece.size() > kLongestPiece)
        fail(where, ": the token '", printable(piece, 20), "' has ", piece.size(),
             " bytes, must have at most ", kLongestPiece);
      vocabulary_.add(piece, id, where);
      scores_.push_back(entry.at(1).get<double>());
      if (left_out.count(id) || fixed.count(id)) continue;
      lowest = std::min(lowest, scores_.back());
      highest_ = std::max(highest_, scores_.back());
    }
    for (const int64_t id : fixed)
      if (id >= 0 && id < std::ssize(scores_)) fixed_.insert(static_cast<int32_t>(id));
    unknown_score_ = (std::isfinite(lowest) ? lowest : 0) - kUnknownPenalty;
    if (const auto found = settings.find("unk_id"); found != settings.end() && !found->is_null()) {
      unknown_ = static_cast<int32_t>(json_integer(*found, where, "unk_id", 0, std::ssize(scores_) - 1));
    }
    for (int32_t id = 0; id < vocabulary_.size(); ++id)
      if (!left_out.count(id)) trie_.insert(to_code_points(vocabulary_.token(id), where), id);
    if (settings.value("byte_fallback", false)) read_bytes();
  }

  void encode(std::u32string_view piece, std::vector<PieceToken>& out) const override {
    struct Best {
      double score = 0;
      int32_t id = -1;
      size_t start = std::u32string_view::npos;
    };
    std::vector<Best> best(piece.size() + 1);  // the best path that ends at each position
    for (size_t start = 0; start < piece.size(); ++start) {
      const double here = best[start].score;
      const auto offer = [&](size_t end, double score, int32_t id) {
        Best& target = best[end];
        const double sum =
            single_precision_ ? static_cast<double>(static_cast<float>(here + score)) : here + score;
        if (target.start == std::u32string_view::npos || sum > target.score) target = {sum, id, start};
      };
      bool single = false;
      uint32_t node = CharacterTrie::kRoot;
      for (size_t end = start; end < piece.size();) {
        node = trie_.child(node, piece[end]);
        if (node == CharacterTrie::kNone) break;
        ++end;
        const int32_t id = trie_.value(node);
        if (id < 0) continue;
        const double length = static_cast<double>(end - start);
        offer(end, fixed_.count(id) ? length * highest_ - 0.1 : scores_[static_cast<size_t>(id)], id);
        single = single || end == start + 1;
      }
      if (!single) offer(start + 1, unknown_score_, -1);
    }
    std::vector<PieceToken> tokens;
    for (size_t end = piece.size(); end > 0; end = best[end].start)
      tokens.push_back({best[end].id, static_cast<uint32_t>(best[end].start), static_cast<uint32_t>(end)});
    put(piece, tokens, out);
  }

 private:
  void read_bytes() {
    constexpr std::string_view digits = "0123456789ABCDEF";
    for (size_t byte = 0; byte < 256; ++byte)
      bytes_[byte] = vocabulary_.find(std::string{'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'})
                         .value_or(-1);
  }

  // Appends the tokens in order; a run of unknown characters is one token, or bytes if each of them has a token.
  void put(std::u32string_view piece, const std::vector<PieceToken>& tokens,
           std::vector<PieceToken>& out) const {
    for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
      if (token->id >= 0) {
        out.push_back(*token);
        continue;
      }
      PieceToken run = *token;
      while (fuse_unknown_ && std::next(token) != tokens.rend() && std::next(token)->id < 0)
        run.end = (++token)->end;
      put_unknown(piece, run, out);
    }
  }

  void put_unknown(std::u32string_view piece, const PieceToken& run, std::vector<PieceToken>& out) const {
    const auto token_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    const std::u32string_view text = piece.substr(run.start, run.end - run.start);
    const std::string bytes = to_utf8(text);
    if (std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return token_of(byte) >= 0; })) {
      for (uint32_t i = run.start; i < run.end; ++i)
        for (const char byte : to_utf8(piece.substr(i, 1))) out.push_back({token_of(byte), i, i + 1});
    } else if (unknown_ >= 0) {
      out.push_back({unknown_, run.start, run.end});
    } else {
      fail_unknown(text, "it has no unk_id");
    }
  }

  bool fuse_unknown_;
  // SentencePiece keeps sums in single precision, which decides between paths of equal score ("xxxx").
  bool single_precision_;
  std::vector<double> scores_;
  std::set<int32_t> fixed_;
  double unknown_score_ = 0, highest_ = 0;  // highest: at least 0, as SentencePiece starts near 0
  CharacterTrie trie_;                      // token to id
  std::array<int32_t, 256> bytes_ = [] {
    std::array<int32_t, 256> none{};
    none.fill(-1);
    return none;
  }();
};

}  // namespace

std::unique_ptr<PieceModel> make_unigram(const Json& settings, const std::string& where) {
  return std::make_unique<Unigram>(settings, where);
}

}  // namespace tessera::tokens
