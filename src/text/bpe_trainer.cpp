#include "text/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "text/tokeniser_steps.h"
#include "text/unicode.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using namespace tokens;
using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    return std::hash<int64_t>()(int64_t{pair.first} << 32 | static_cast<uint32_t>(pair.second));
  }
};

Json byte_level(bool prefix_space) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", prefix_space},
          {"trim_offsets", false},
          {"use_regex", true}};
}

// Puts [begin] and [end] around a text, in the form of tokenizer.json.
Json wrapping(const BpeTrainerOptions& options) {
  if (options.begin.empty() && options.end.empty()) return nullptr;
  Json single = Json::array(), known = Json::object();
  const auto add = [&](const std::string& name) {
    if (name.empty()) return;
    const auto at = std::find(options.special.begin(), options.special.end(), name);
    check(at != options.special.end(), "'", name, "' is put around texts, but is not a special token");
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    known[name] = {{"id", name}, {"ids", {at - options.special.begin()}}, {"tokens", {name}}};
  };
  add(options.begin);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(options.end);
  Json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", known}};
}

struct Word {
  std::vector<int32_t> symbols;
  int64_t count;
};

// The tokens so far: their ids by text, and their texts by id. Texts of special tokens are left out: no merge has them.
struct Tokens {
  Json ids = Json::object();
  std::vector<std::string> texts;

  int32_t count() const { return static_cast<int32_t>(texts.size()); }
  // Returns the entry of tokenizer.json.
  Json add_special(const std::string& name) {
    const int32_t id = count();
    ids[name] = id;
    texts.emplace_back();
    return added_token(name, id, true);
  }
  int32_t add(const std::string& text) {
    const int32_t id = count();
    ids[text] = id;
    texts.push_back(text);
    return id;
  }
  // Returns the id of a merged text, which may exist already.
  int32_t merged(const std::string& text) {
    const auto known = ids.find(text);
    return known == ids.end() ? add(text) : known->get<int32_t>();
  }
};

// Adds the 256 bytes to the tokens, and writes each word as their ids.
std::vector<Word> words_of(const std::map<std::u32string, int64_t>& counts, Tokens& tokens) {
  std::unordered_map<char32_t, int32_t> first;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = byte_character(static_cast<unsigned char>(byte));
    first[c] = tokens.add(to_utf8({&c, 1}));
  }
  std::vector<Word> words;
  for (const auto& [chars, count] : counts) {
    Word word{{}, count};
    for (const char32_t c : chars) word.symbols.push_back(first.at(c));
    words.push_back(std::move(word));
  }
  return words;
}

// Counts of neighbouring pairs, updated as words are merged.
class Pairs {
 public:
  explicit Pairs(std::vector<Word> words) : words_(std::move(words)) {
    for (size_t i = 0; i < words_.size(); ++i) count(i, +1);
    for (const auto& [pair, state] : pairs_) offer(pair, state.count);
  }

  // Returns the most frequent pair and its count.
  std::pair<Pair, int64_t> best() {
    while (!heap_.empty()) {
      const auto [times, pair] = heap_.top();
      const int64_t now = pairs_.at(pair).count;
      if (now == times) return {pair, times};
      heap_.pop();
      if (now > 0) heap_.push({now, pair});
    }
    return {{0, 0}, 0};
  }

  void merge(const Pair& pair, int32_t into) {
    const std::set<size_t> where = std::move(pairs_.at(pair).words);
    touched_.clear();
    for (const size_t index : where) {
      count(index, -1);
      std::vector<int32_t>& symbols = words_[index].symbols;
      size_t kept = 0;
      for (size_t i = 0; i < symbols.size(); ++i) {
        const bool here = i + 1 < symbols.size() && Pair(symbols[i], symbols[i + 1]) == pair;
        symbols[kept++] = here ? into : symbols[i];
        i += here ? 1 : 0;
      }
      symbols.resize(kept);
      count(index, +1);
    }
    pairs_.at(pair).count = 0;
    for (const Pair& changed : touched_)
      if (const int64_t now = pairs_.at(changed).count; now > 0) offer(changed, now);
  }

 private:
  struct State {
    int64_t count = 0;
    std::set<size_t> words;
  };
  struct Less {  // largest: most frequent, then the smaller ids
    bool operator()(const std::pair<int64_t, Pair>& a, const std::pair<int64_t, Pair>& b) const {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    }
  };

  void count(size_t index, int64_t sign) {
    const Word& word = words_[index];
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      const Pair pair(word.symbols[i], word.symbols[i + 1]);
      State& state = pairs_[pair];
      state.count += sign * word.count;
      if (sign > 0) state.words.insert(index);
      touched_.insert(pair);
    }
  }
  void offer(const Pair& pair, int64_t times) { heap_.push({times, pair}); }

  std::vector<Word> words_;
  std::unordered_map<Pair, State, PairHash> pairs_;
  std::set<Pair> touched_;
  std::priority_queue<std::pair<int64_t, Pair>, std::vector<std::pair<int64_t, Pair>>, Less> heap_;
};

}  // namespace

struct BpeTrainer::Counter {
  std::unique_ptr<Splitter> splitter;
  std::map<std::u32string, int64_t> words;  // sorted, so the result does not depend on the order of the texts
};

BpeTrainer::BpeTrainer(const BpeTrainerOptions& options)
    : options_(options), counter_(std::make_shared<Counter>()) {
  counter_->splitter = make_splitter(byte_level(options.prefix_space), "the trainer of merges");
  const int64_t least = 256 + std::ssize(options.special);
  if (options.vocabulary < least)
    fail_usage("a byte-level vocabulary of ", options.vocabulary,
               " tokens is too small: bytes and special tokens are ", least);
}

void BpeTrainer::add(std::string_view text) {
  // Splits at line ends, so that a long text is not converted to code points all at once.
  constexpr size_t kPiece = 1 << 20;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(at + kPiece, text.size());
    const size_t line = end < text.size() ? text.rfind('\n', end) : std::string_view::npos;
    if (line != std::string_view::npos && line > at) end = line;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    std::vector<AlignedText> pieces = {
        aligned(to_code_points(text.substr(at, end - at), "the text to learn from"))};
    counter_->splitter->apply(pieces);
    for (AlignedText& piece : pieces) ++counter_->words[std::move(piece.chars)];
    at = end;
  }
}

std::string BpeTrainer::learn(const std::function<bool(int64_t)>& progress) {
  if (counter_->words.empty()) fail("there is no text to learn merges from");
  Tokens tokens;
  Json added = Json::array(), merges = Json::array();
  for (const std::string& name : options_.special) added.push_back(tokens.add_special(name));
  Pairs pairs(words_of(counter_->words, tokens));
  while (tokens.count() < options_.vocabulary) {
    const auto [pair, times] = pairs.best();
    if (times < std::max<int64_t>(1, options_.least)) break;
    const std::string &left = tokens.texts[static_cast<size_t>(pair.first)],
                      &right = tokens.texts[static_cast<size_t>(pair.second)];
    merges.push_back(Json::array({left, right}));
    pairs.merge(pair, tokens.merged(left + right));
    if (progress && !progress(tokens.count()))
      throw Error(ErrorKind::interrupted, text("interrupted after ", tokens.count(), " tokens"));
  }
  const Json tree = {{"version", "1.0"},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", byte_level(options_.prefix_space)},
                     {"post_processor", wrapping(options_)},
                     {"decoder", byte_level(options_.prefix_space)},
                     {"model", {{"type", "BPE"}, {"vocab", tokens.ids}, {"merges", merges}}}};
  return tree.dump();
}

}  // namespace tessera
