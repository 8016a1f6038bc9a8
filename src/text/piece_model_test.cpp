#include "text/piece_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/error.h"
#include "text/bpe_trainer.h"
#include "text/text_testing.h"

namespace tessera {
namespace {

using tokens::PieceToken;

constexpr std::string_view kLetters = "abcx";  // "x" is in no vocabulary

std::string random_piece(RandomStream& random, int64_t longest) {
  std::string piece;
  for (int64_t i = random.integer(1, longest); i > 0; --i) piece += kLetters[random.below(kLetters.size())];
  return piece;
}

std::vector<PieceToken> encoded(const tokens::PieceModel& model, const std::string& piece) {
  std::vector<PieceToken> out;
  model.encode(tokens::to_code_points(piece, "a piece"), out);
  return out;
}

// "token[start,end) …"
std::string printed(const tokens::PieceModel& model, const std::vector<PieceToken>& found) {
  std::string out;
  for (const PieceToken& token : found)
    out += model.vocabulary().token(token.id) + "[" + std::to_string(token.start) + "," +
           std::to_string(token.end) + ") ";
  return out;
}

struct Symbol {
  std::string name;
  size_t start, end;
};

struct Merges {
  std::vector<std::string> vocabulary = {"?", "a", "b", "c"};
  std::map<std::pair<std::string, std::string>, size_t> ranks;

  explicit Merges(RandomStream& random) {
    for (int64_t i = random.integer(0, 12); i > 0; --i) {
      const auto any = [&] { return vocabulary[1 + random.below(vocabulary.size() - 1)]; };
      const std::string left = any(), right = any();
      if (!ranks.emplace(std::pair(left, right), ranks.size()).second) continue;
      if (std::find(vocabulary.begin(), vocabulary.end(), left + right) == vocabulary.end())
        vocabulary.push_back(left + right);
    }
  }
  Json settings(bool fuse_unknown) const {
    Json vocab = Json::object();
    for (const std::string& token : vocabulary) vocab[token] = vocab.size();
    std::vector<std::pair<std::string, std::string>> pairs(ranks.size());
    for (const auto& [pair, rank] : ranks) pairs[rank] = pair;
    return {
        {"type", "BPE"}, {"unk_token", "?"}, {"fuse_unk", fuse_unknown}, {"vocab", vocab}, {"merges", pairs}};
  }
  // Merges the leftmost pair of the lowest rank until no pair has one.
  std::string encode(const std::string& piece, bool fuse_unknown) const {
    std::vector<Symbol> symbols;
    for (size_t i = 0; i < piece.size(); ++i) {
      const std::string name = piece[i] == 'x' ? "?" : piece.substr(i, 1);
      if (fuse_unknown && name == "?" && !symbols.empty() && symbols.back().name == "?")
        symbols.back().end = i + 1;
      else
        symbols.push_back({name, i, i + 1});
    }
    while (true) {
      size_t best = ranks.size(), at = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = ranks.find({symbols[i].name, symbols[i + 1].name});
        if (found != ranks.end() && found->second < best) best = found->second, at = i;
      }
      if (best == ranks.size()) break;
      symbols[at].name += symbols[at + 1].name;
      symbols[at].end = symbols[at + 1].end;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    std::string out;
    for (const Symbol& symbol : symbols)
      out += symbol.name + "[" + std::to_string(symbol.start) + "," + std::to_string(symbol.end) + ") ";
    return out;
  }
};

TEST(Bpe, EqualsOneMergeAtATime) {
  for (uint64_t sample = 0; sample < 300; ++sample) {
    RandomStream random(21, "merges", sample);
    const Merges merges(random);
    const bool fuse = random.below(2) == 1;
    const auto model = tokens::make_piece_model(merges.settings(fuse), "f");
    for (int i = 0; i < 20; ++i) {
      const std::string piece = random_piece(random, 24);
      EXPECT_EQ(printed(*model, encoded(*model, piece)), merges.encode(piece, fuse)) << piece;
    }
  }
}

// Tokens and places of tokenizers 0.23. Some bytes have tokens, others are unknown with their whole character.
TEST(Bpe, UnknownTokensFollowBytesThatHaveTokens) {
  Json settings = {{"type", "BPE"},
                   {"unk_token", "?"},
                   {"byte_fallback", true},
                   {"vocab", {{"?", 0}, {"a", 1}, {"b", 2}, {"<0xC3>", 3}, {"ab", 4}, {"<0xA9>", 5}}},
                   {"merges", {"a b"}}};
  const auto tokens = [&](bool fuse, const std::string& text) {
    settings["fuse_unk"] = fuse;
    const auto model = tokens::make_piece_model(settings, "f");
    return printed(*model, encoded(*model, text));
  };
  EXPECT_EQ(tokens(false, "xéx"), "<0xC3>[0,1) <0xA9>[1,2) ?[1,2) ?[2,3) ");
  EXPECT_EQ(tokens(false, "xxéab"), "?[0,1) <0xC3>[1,2) <0xA9>[2,3) ?[2,3) ab[3,5) ");
  EXPECT_EQ(tokens(true, "xéx"), "<0xC3>[0,1) <0xA9>[1,2) ?[1,3) ");
  EXPECT_EQ(tokens(true, "xxéab"), "<0xC3>[0,1) <0xA9>[1,2) ?[2,3) ab[3,5) ");
  EXPECT_EQ(tokens(true, "aéb"), "a[0,1) <0xC3>[1,2) <0xA9>[1,2) b[2,3) ");
}

TEST(Unigram, ARunOfUnknownCharactersIsBytesOnlyIfAllHaveTokens) {
  const std::vector<std::pair<std::string, double>> vocabulary = {{"?", 0},   {"a", -1},      {"b", -1.5},
                                                                  {"ab", -2}, {"<0xC3>", -3}, {"<0xA9>", -3}};
  const Json settings = {{"type", "Unigram"}, {"unk_id", 0}, {"byte_fallback", true}, {"vocab", vocabulary}};
  const auto model = tokens::make_piece_model(settings, "f");
  const auto tokens = [&](const std::string& text) { return printed(*model, encoded(*model, text)); };
  EXPECT_EQ(tokens("aéb"), "a[0,1) <0xC3>[1,2) <0xA9>[1,2) b[2,3) ");
  EXPECT_EQ(tokens("xxéab"), "?[0,3) ab[3,5) ");
}

// Returns the sum of scores of the best cut of a piece, by trying all. A character that is no token costs 10
// more than the worst token.
double best_sum(const std::map<std::string, double>& scores, double lowest, const std::string& piece,
                size_t at = 0) {
  if (at == piece.size()) return 0;
  double best = -std::numeric_limits<double>::infinity();
  for (size_t end = at + 1; end <= piece.size(); ++end) {
    const auto token = scores.find(piece.substr(at, end - at));
    if (token != scores.end()) best = std::max(best, token->second + best_sum(scores, lowest, piece, end));
  }
  if (!scores.count(piece.substr(at, 1)))
    best = std::max(best, lowest - 10 + best_sum(scores, lowest, piece, at + 1));
  return best;
}

TEST(Unigram, EqualsTheBestOfAllCuts) {
  for (uint64_t sample = 0; sample < 200; ++sample) {
    RandomStream random(22, "unigram", sample);
    std::map<std::string, double> scores;
    for (int64_t i = random.integer(1, 12); i > 0; --i) {
      std::string token = random_piece(random, 3);
      std::replace(token.begin(), token.end(), 'x', 'a');
      scores[token] = -static_cast<double>(random.integer(1, 1000)) / 64;  // sums are exact
    }
    Json vocabulary = Json::array({Json::array({"<unk>", 0})});
    double lowest = 0;
    for (const auto& [token, score] : scores) {
      vocabulary.push_back(Json::array({token, score}));
      lowest = std::min(lowest, score);
    }
    const auto model =
        tokens::make_piece_model({{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocabulary}}, "f");
    for (int i = 0; i < 10; ++i) {
      const std::string piece = random_piece(random, 9);
      double sum = 0;
      size_t place = 0;
      for (const PieceToken& token : encoded(*model, piece)) {
        EXPECT_EQ(token.start, place) << piece;
        place = token.end;
        const std::string part = piece.substr(token.start, token.end - token.start);
        if (token.id != 0) {
          EXPECT_EQ(model->vocabulary().token(token.id), part);
        }
        sum += token.id ? scores.at(part) : (lowest - 10) * static_cast<double>(part.size());
      }
      EXPECT_EQ(place, piece.size());
      EXPECT_EQ(sum, best_sum(scores, lowest, piece)) << piece;
    }
  }
}

TEST(Unigram, TakesTheBestSum) {
  const std::vector<std::pair<std::string, double>> pieces = {
      {"<unk>", 0}, {"a", -1}, {"b", -1.5}, {"ab", -2}, {"abb", -6}};
  Json vocabulary = Json::array();
  for (const auto& [piece, score] : pieces) vocabulary.push_back(Json::array({piece, score}));
  const Json tree = {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocabulary}}}};
  const Tokeniser tokeniser = tokeniser_of(tree);
  EXPECT_EQ(tokeniser.encode("abb"), (std::vector<int32_t>{3, 2}));      // -3.5, not -4 nor -6
  EXPECT_EQ(tokeniser.encode("a??b"), (std::vector<int32_t>{1, 0, 2}));  // a run of unknowns is one
}

// Each b costs less than half the spacing of floats at 2; three together cost more than all of it.
TEST(Unigram, SumsInThePrecisionOfItsForm) {
  const double step = std::ldexp(1.0, -22);
  Json vocabulary = Json::array();
  for (const auto& [piece, score] :
       {std::pair<std::string, double>{"<unk>", -30}, {"a", -2}, {"b", -0.45f * step}, {"abbb", -2 - step}})
    vocabulary.push_back(Json::array({piece, score}));
  Json tree = {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocabulary}}}};
  EXPECT_EQ(tokeniser_of(tree).encode("abbb"), (std::vector<int32_t>{3}));
  tree["model"]["single_precision"] = true;  // as SentencePiece
  EXPECT_EQ(tokeniser_of(tree).encode("abbb"), (std::vector<int32_t>{1, 2, 2, 2}));
}

TEST(WordPiece, EqualsTheLongestFromTheLeft) {
  for (uint64_t sample = 0; sample < 200; ++sample) {
    RandomStream random(23, "wordpiece", sample);
    Json vocabulary = {{"[UNK]", 0}};
    for (int64_t i = random.integer(1, 16); i > 0; --i) {
      std::string token = random_piece(random, 3);
      std::replace(token.begin(), token.end(), 'x', 'a');
      if (random.below(2)) token.insert(0, "##");
      if (!vocabulary.contains(token)) vocabulary[token] = vocabulary.size();
    }
    const auto model = tokens::make_piece_model(
        {{"type", "WordPiece"}, {"vocab", vocabulary}, {"max_input_chars_per_word", 8}}, "f");
    for (int i = 0; i < 20; ++i) {
      const std::string piece = random_piece(random, 9);
      std::string wanted;
      for (size_t start = 0, end = 0; start < piece.size() && piece.size() <= 8; start = end) {
        const auto name = [&](size_t to) { return (start ? "##" : "") + piece.substr(start, to - start); };
        for (end = piece.size(); end > start && !vocabulary.contains(name(end));) --end;
        if (end == start) {
          wanted.clear();
          break;
        }
        wanted += name(end) + "[" + std::to_string(start) + "," + std::to_string(end) + ") ";
      }
      if (wanted.empty()) wanted = "[UNK][0," + std::to_string(piece.size()) + ") ";
      EXPECT_EQ(printed(*model, encoded(*model, piece)), wanted) << piece;
    }
  }
}

TEST(WordPiece, TakesTheLongest) {
  const Json tree = {{"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                     {"decoder", {{"type", "WordPiece"}}},
                     {"model",
                      {{"type", "WordPiece"},
                       {"unk_token", "[UNK]"},
                       {"vocab", {{"[UNK]", 0}, {"un", 1}, {"##able", 2}, {"##a", 3}, {"!", 4}}}}}};
  const Tokeniser tokeniser = tokeniser_of(tree);
  EXPECT_EQ(tokeniser.encode("unable una! unx"), (std::vector<int32_t>{1, 2, 1, 3, 4, 0}));
  EXPECT_EQ(tokeniser.decode(std::vector<int32_t>{1, 2, 4}), "unable!");
}

TEST(BpeTrainer, CommonestPairsFirst) {
  const std::vector<std::string> texts = {"abab abab ab", "cab\n", "\xC3\xA9t\xC3\xA9"};
  std::string first;
  for (const bool backwards : {false, true}) {  // the order of texts does not matter
    BpeTrainer trainer({.vocabulary = 260, .special = {"<s>"}});
    for (size_t i = 0; i < texts.size(); ++i) trainer.add(texts[backwards ? texts.size() - 1 - i : i]);
    const std::string definition = trainer.learn();
    if (!backwards) first = definition;
    EXPECT_EQ(definition, first);
  }
  const Tokeniser tokeniser = Tokeniser::from_definition(first, "f");
  EXPECT_EQ(tokeniser.token(257), "ab");  // six times
  EXPECT_EQ(tokeniser.find("<s>"), 0);
  for (const std::string& text : texts) EXPECT_EQ(tokeniser.decode(tokeniser.encode(text)), text);
  EXPECT_THROW(BpeTrainer({.vocabulary = 256}), Error);
  EXPECT_THROW(BpeTrainer({.vocabulary = 300}).learn(), Error);
}

// Learns by a full count of pairs before each merge.
std::vector<std::string> learned_tokens(std::vector<std::vector<std::string>> words, size_t most) {
  std::vector<std::string> out;
  std::map<std::string, size_t> order;  // ids: bytes, then merges
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    tokens::append_utf8(tokens::byte_character(static_cast<unsigned char>(byte)), name);
    order.emplace(name, order.size());
  }
  while (out.size() < most) {
    std::map<std::pair<size_t, size_t>, std::pair<int64_t, std::pair<std::string, std::string>>> counts;
    for (const auto& word : words)
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        auto& entry = counts[{order.at(word[i]), order.at(word[i + 1])}];
        ++entry.first;
        entry.second = {word[i], word[i + 1]};
      }
    std::pair<int64_t, std::pair<std::string, std::string>> best;
    for (const auto& [ids, entry] : counts)  // in the order of ids: the first of equals stays
      if (entry.first > best.first) best = entry;
    if (best.first < 2) break;
    const std::string both = best.second.first + best.second.second;
    if (order.emplace(both, order.size()).second) out.push_back(both);
    for (auto& word : words)
      for (size_t i = 0; i + 1 < word.size(); ++i)
        if (word[i] == best.second.first && word[i + 1] == best.second.second) {
          word[i] = both;
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return out;
}

TEST(BpeTrainer, EqualsCountingAnew) {
  for (uint64_t sample = 0; sample < 40; ++sample) {
    RandomStream random(24, "trainer", sample);
    BpeTrainer trainer({.vocabulary = 256 + 20, .special = {}});
    std::vector<std::vector<std::string>> words;
    for (int i = 0; i < 12; ++i) {  // letters alone: each text is one word
      const std::string word = random_piece(random, 12);
      trainer.add(word);
      words.emplace_back();
      for (const char c : word) words.back().emplace_back(1, c);
    }
    const Tokeniser tokeniser = Tokeniser::from_definition(trainer.learn(), "f");
    std::vector<std::string> learned;
    for (int32_t id = 256; id < tokeniser.size(); ++id) learned.push_back(tokeniser.token(id));
    EXPECT_EQ(learned, learned_tokens(words, 20));
    for (int i = 0; i < 10; ++i) {
      const std::string text = tokens::to_utf8(random_chars(random, U"abcx é漢\n", 30));
      EXPECT_EQ(tokeniser.decode(tokeniser.encode(text)), text);
    }
  }
}

}  // namespace
}  // namespace tessera
