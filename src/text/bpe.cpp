#include <algorithm>
#include <array>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "text/piece_model.h"
#include "text/unicode.h"

namespace tessera::tokens {
namespace {

using Json = nlohmann::json;

std::string text_or_none(const Json& settings, const char* key) {
  const auto found = settings.find(key);
  return found == settings.end() || found->is_null() ? "" : found->get<std::string>();
}

class Bpe : public PieceModel {
 public:
  Bpe(const Json& settings, const std::string& where)
      : PieceModel(where),
        prefix_(text_or_none(settings, "continuing_subword_prefix")),
        suffix_(text_or_none(settings, "end_of_word_suffix")),
        fuse_unknown_(settings.value("fuse_unk", false)),
        ignore_merges_(settings.value("ignore_merges", false)) {
    for (const auto& [token, id] : settings.at("vocab").items()) vocabulary_.add(token, id, where);
    read_merges(settings.at("merges"), where);
    if (const std::string unknown = text_or_none(settings, "unk_token"); !unknown.empty()) {
      unknown_ = vocabulary_.find(unknown).value_or(-1);
      if (unknown_ < 0)
        fail(where, ": the unknown token '", printable(unknown), "' is not in the vocabulary");
    }
    if (settings.value("byte_fallback", false)) read_bytes();
    if (const auto whole = settings.find("whole_pieces"); whole != settings.end())
      for (const Json& piece : *whole) whole_pieces_.insert(to_code_points(piece.get<std::string>(), where));
  }

  void encode(std::u32string_view piece, std::vector<PieceToken>& out) const override {
    if (ignore_merges_ || whole_pieces_.count(piece)) {
      const auto whole = vocabulary_.find(to_utf8(piece));
      if (whole) {
        out.push_back({*whole, 0, static_cast<uint32_t>(piece.size())});
        return;
      }
    }
    std::vector<Symbol> symbols = first_symbols(piece);
    merge(symbols);
    for (const Symbol& symbol : symbols)
      if (symbol.id >= 0) out.push_back({symbol.id, symbol.start, symbol.end});
  }

 private:
  struct Symbol {
    int32_t id;  // -1: merged into the previous one
    uint32_t start, end;
    int32_t before, behind;
  };
  struct Merge {
    int32_t rank, id;
  };
  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  void read_merges(const Json& merges, const std::string& where) {
    merges_.reserve(merges.size() * 2);
    int32_t rank = 0;
    for (const Json& merge : merges) {
      std::string left, right;
      if (merge.is_array()) {
        left = merge.at(0).get<std::string>(), right = merge.at(1).get<std::string>();
      } else {
        const std::string line = merge.get<std::string>();
        const size_t blank = line.find(' ', 1);
        if (blank == std::string::npos)
          fail(where, ": merge ", rank + 1, " is '", printable(line), "', not a pair");
        left = line.substr(0, blank), right = line.substr(blank + 1);
      }
      const auto a = vocabulary_.find(left), b = vocabulary_.find(right);
      const std::string_view rest =
          std::string_view(right).substr(right.starts_with(prefix_) ? prefix_.size() : 0);
      const auto both = vocabulary_.find(left + std::string(rest));
      if (!a || !b || !both)
        fail(where, ": merge ", rank + 1, " joins '", printable(left), "' and '", printable(right), "': '",
             printable(!a   ? left
                       : !b ? right
                            : left + std::string(rest)),
             "' is not in the vocabulary");
      merges_.insert_or_assign(key(*a, *b),
                               Merge{rank, *both});  // as published: of equal merges the last one counts
      ++rank;
    }
  }

  void read_bytes() {
    constexpr std::string_view digits = "0123456789ABCDEF";
    for (size_t byte = 0; byte < 256; ++byte) {
      const std::string token = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
      bytes_[byte] = vocabulary_.find(token).value_or(-1);
    }
    partial_bytes_ = std::find(bytes_.begin(), bytes_.end(), -1) != bytes_.end();
  }

  static void append(std::vector<Symbol>& symbols, int32_t id, size_t start, size_t end) {
    const auto number = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, static_cast<uint32_t>(start), static_cast<uint32_t>(end), number - 1, number + 1});
  }

  // Unknown characters that were not written yet, and the number of their bytes.
  struct Unknown {
    size_t start = 0, end = 0;
    uint32_t bytes = 0;
  };
  void write(Unknown& unknown, std::vector<Symbol>& symbols, std::vector<uint32_t>& lengths) const {
    if (unknown.bytes == 0) return;
    append(symbols, unknown_, unknown.start, unknown.end);
    if (partial_bytes_) lengths.push_back(unknown.bytes);
    unknown.bytes = 0;
  }

  // Gives symbols the places of consecutive bytes, since unknown tokens follow the bytes after them.
  static void place_by_length(std::u32string_view piece, const std::vector<uint32_t>& lengths,
                              std::vector<Symbol>& symbols) {
    std::vector<uint32_t> characters;  // of each byte
    for (size_t i = 0; i < piece.size(); ++i)
      characters.insert(characters.end(), to_utf8(piece.substr(i, 1)).size(), static_cast<uint32_t>(i));
    size_t byte = 0;
    for (size_t i = 0; i < symbols.size(); byte += lengths[i++]) {
      symbols[i].start = characters[byte];
      symbols[i].end = characters[byte + lengths[i] - 1] + 1;
    }
  }

  // An unknown token is written before the next known character, as in tokenizers: after the bytes between them.
  std::vector<Symbol> first_symbols(std::u32string_view piece) const {
    std::vector<Symbol> symbols;
    std::vector<uint32_t> lengths;  // in bytes, if some bytes have no token
    symbols.reserve(piece.size());
    std::string name;
    Unknown unknown;
    for (size_t i = 0; i < piece.size(); ++i) {
      name.clear();
      if (i > 0) name += prefix_;
      append_utf8(piece[i], name);
      const size_t plain = i > 0 ? prefix_.size() : 0;
      const size_t count = name.size() - plain;
      if (i + 1 == piece.size()) name += suffix_;
      if (const auto id = vocabulary_.find(name)) {
        write(unknown, symbols, lengths);
        append(symbols, *id, i, i + 1);
        if (partial_bytes_) lengths.push_back(static_cast<uint32_t>(count));
        continue;
      }
      const std::string_view bytes = std::string_view(name).substr(plain, count);
      const auto byte_id = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
      if (std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return byte_id(byte) >= 0; })) {
        for (const char byte : bytes) append(symbols, byte_id(byte), i, i + 1);
        if (partial_bytes_) lengths.insert(lengths.end(), count, 1);
      } else if (unknown_ >= 0) {
        if (!fuse_unknown_) write(unknown, symbols, lengths);
        if (unknown.bytes == 0) unknown.start = i;
        unknown.end = i + 1, unknown.bytes += static_cast<uint32_t>(count);
      }
    }
    write(unknown, symbols, lengths);
    if (partial_bytes_ && unknown_ >= 0) place_by_length(piece, lengths, symbols);
    if (!symbols.empty()) symbols.back().behind = -1;
    return symbols;
  }

  struct Candidate {
    int32_t rank, at, left, right, id;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };

  // Merges the pair that was learned first, the leftmost on a tie.
  void merge(std::vector<Symbol>& symbols) const {
    std::vector<Candidate> heap;
    const auto offer = [&](int32_t at) {
      if (at < 0) return;
      const Symbol& left = symbols[static_cast<size_t>(at)];
      if (left.behind < 0) return;
      const int32_t right = symbols[static_cast<size_t>(left.behind)].id;
      const auto found = merges_.find(key(left.id, right));
      if (found == merges_.end()) return;
      heap.push_back({found->second.rank, at, left.id, right, found->second.id});
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    };
    heap.reserve(symbols.size() + symbols.size() / 2);  // each merge removes one pair and adds at most two
    for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) offer(i);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      const Candidate best = heap.back();
      heap.pop_back();
      Symbol& left = symbols[static_cast<size_t>(best.at)];
      if (left.id != best.left || left.behind < 0) continue;
      Symbol& right = symbols[static_cast<size_t>(left.behind)];
      if (right.id != best.right) continue;
      left.id = best.id;
      left.end = right.end;
      right.id = -1;
      left.behind = right.behind;
      if (left.behind >= 0) symbols[static_cast<size_t>(left.behind)].before = best.at;
      offer(left.before);
      offer(best.at);
    }
  }

  struct Hash {
    size_t operator()(uint64_t value) const {
      return static_cast<size_t>((value ^ value >> 29) * 0x9E3779B97F4A7C15u >> 7);
    }
  };
  std::string prefix_, suffix_;
  bool fuse_unknown_, ignore_merges_, partial_bytes_ = false;
  std::unordered_map<uint64_t, Merge, Hash> merges_;
  std::array<int32_t, 256> bytes_ = [] {
    std::array<int32_t, 256> none{};
    none.fill(-1);
    return none;
  }();
  std::set<std::u32string, std::less<>> whole_pieces_;
};

}  // namespace

std::unique_ptr<PieceModel> make_bpe(const Json& settings, const std::string& where) {
  return std::make_unique<Bpe>(settings, where);
}

}  // namespace tessera::tokens
