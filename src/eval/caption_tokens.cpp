// The Penn Treebank's way to cut English into words, as far as captions need it.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "eval/captioning.h"

namespace tessera::eval {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_letter(char c) { return is_upper(c) || (c >= 'a' && c <= 'z') || (c & 0x80) != 0; }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (size_t i = 0; i < out.size(); ++i) {
    const auto byte = static_cast<unsigned char>(out[i]);
    if (is_upper(out[i])) out[i] = static_cast<char>(byte + 32);
    // Latin letters with marks, U+00C0 to U+00DE but for the multiplication sign.
    if (byte == 0xC3 && i + 1 < out.size()) {
      const auto next = static_cast<unsigned char>(out[i + 1]);
      if (next >= 0x80 && next <= 0x9E && next != 0x97) out[i + 1] = static_cast<char>(next + 32);
    }
  }
  return out;
}

// Signs that stand for others.
struct Sign {
  std::string_view sign, stands_for;
};
constexpr std::array kSigns = {Sign{"\u201c", "\""},  Sign{"\u201d", "\""},   Sign{"\u201e", "\""},
                               Sign{"\u00ab", "\""},  Sign{"\u00bb", "\""},   Sign{"\u2018", "'"},
                               Sign{"\u2019", "'"},   Sign{"\u2014", " -- "}, Sign{"\u2013", " -- "},
                               Sign{"\u2026", "..."}, Sign{"\u00a0", " "}};
constexpr std::array kBrackets = {Sign{"(", "-lrb-"}, Sign{")", "-rrb-"}, Sign{"[", "-lsb-"},
                                  Sign{"]", "-rsb-"}, Sign{"{", "-lcb-"}, Sign{"}", "-rcb-"}};
// Words that are two.
struct Pair {
  std::string_view whole;
  size_t first;  // letters of the first word
};
constexpr std::array kPairs = {Pair{"cannot", 3}, Pair{"gonna", 3}, Pair{"gotta", 3},
                               Pair{"wanna", 3},  Pair{"lemme", 3}, Pair{"gimme", 3}};
constexpr std::array<std::string_view, 7> kEndings = {"'s", "'m", "'d", "'re", "'ve", "'ll", "n't"};
// Words that keep their full stop.
constexpr std::array<std::string_view, 27> kAbbreviations = {
    "mr",  "mrs", "ms",  "dr",   "st",  "jr", "sr",   "prof", "gen",  "col", "sgt", "capt", "lt",    "rev",
    "etc", "vs",  "inc", "corp", "ltd", "co", "bros", "ave",  "blvd", "rd",  "ft",  "mt",   "approx"};

std::string plain_signs(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto found = std::find_if(kSigns.begin(), kSigns.end(),
                                    [&](const Sign& sign) { return text.substr(i).starts_with(sign.sign); });
    if (found == kSigns.end()) {
      out += text[i++];
    } else {
      out += found->stands_for;
      i += found->sign.size();
    }
  }
  return out;
}

class Cutter {
 public:
  explicit Cutter(std::string text) : text_(std::move(text)) {}

  std::vector<std::string> cut() {
    while (at_ < text_.size()) {
      if (is_space(text_[at_]))
        ++at_;
      else if (!take_tag() && !take_bracket() && !take_handle() && !take_word())
        take_sign();
    }
    return std::move(tokens_);
  }

 private:
  char peek(size_t offset) const { return at_ + offset < text_.size() ? text_[at_ + offset] : '\0'; }

  void put(size_t length) {
    tokens_.push_back(text_.substr(at_, length));
    at_ += length;
  }

  bool take_tag() {
    if (text_[at_] != '<' || !(is_letter(peek(1)) || peek(1) == '/' || peek(1) == '!')) return false;
    const size_t end = text_.find('>', at_);
    if (end == std::string::npos) return false;
    put(end - at_ + 1);
    return true;
  }

  bool take_bracket() {
    for (const Sign& bracket : kBrackets)
      if (text_[at_] == bracket.sign[0]) {
        tokens_.emplace_back(bracket.stands_for);
        ++at_;
        return true;
      }
    return false;
  }

  // "#tennis", "@somebody".
  bool take_handle() {
    if ((text_[at_] != '#' && text_[at_] != '@') || !is_letter(peek(1))) return false;
    size_t length = 1;
    while (is_word(peek(length))) ++length;
    put(length);
    return true;
  }

  bool take_word() {
    const bool signed_number =
        (text_[at_] == '-' || text_[at_] == '+') && is_digit(peek(1)) && !behind_word();
    if (!is_word(text_[at_]) && !signed_number) return false;
    if (const size_t initials = initials_length(); initials > 0) {
      put(initials);
      return true;
    }
    size_t length = signed_number ? 1 : 0;
    while (is_word(peek(length)) || joins(length)) ++length;
    const std::string word = text_.substr(at_, length);
    if (peek(length) == '.' && keeps_full_stop(word)) {
      put(length + 1);
    } else {
      at_ += length;
      put_word(word);
    }
    return true;
  }

  bool behind_word() const { return at_ > 0 && is_word(text_[at_ - 1]); }

  // "a.m.", "U.S.", "e.g.": single letters, each with a full stop.
  size_t initials_length() const {
    size_t length = 0, letters = 0;
    while (is_letter(peek(length)) && peek(length + 1) == '.') length += 2, ++letters;
    if (letters >= 2 && !is_word(peek(length))) return length;
    return letters == 1 && is_upper(peek(0)) && is_space(peek(2)) ? 2 : 0;
  }

  // Whether the sign there belongs to the word around it.
  bool joins(size_t i) const {
    if (i == 0 || !is_word(peek(i - 1)) || !is_word(peek(i + 1))) return false;
    switch (peek(i)) {
      case '-':
      case '/':
      case '\'':
        return true;
      case '.':
      case ',':
      case ':':
        return is_digit(peek(i - 1)) && is_digit(peek(i + 1));
      case '&':
        return is_upper(peek(i - 1)) && is_upper(peek(i + 1));
      default:
        return false;
    }
  }

  static bool keeps_full_stop(const std::string& word) {
    return std::find(kAbbreviations.begin(), kAbbreviations.end(), lower(word)) != kAbbreviations.end();
  }

  // "isn't" as "is" and "n't", "dog's" as "dog" and "'s".
  void put_word(const std::string& word) {
    const std::string small = lower(word);
    for (const Pair& pair : kPairs)
      if (small == pair.whole) {
        tokens_.push_back(word.substr(0, pair.first));
        tokens_.push_back(word.substr(pair.first));
        return;
      }
    for (const std::string_view ending : kEndings)
      if (small.size() > ending.size() && small.ends_with(ending)) {
        const size_t first = word.size() - ending.size();
        put_word(word.substr(0, first));
        tokens_.push_back(word.substr(first));
        return;
      }
    tokens_.push_back(word);
  }

  // Runs of full stops, dashes, exclamation and question marks are one token; all else one sign each.
  void take_sign() {
    const char sign = text_[at_];
    size_t length = 1;
    const auto same = [&](char c) {
      if (sign == '!' || sign == '?') return c == '!' || c == '?';
      return c == sign && (sign == '.' || sign == '-' || sign == '`');
    };
    while (same(peek(length))) ++length;
    if (sign == '.' && length == 2) length = 1;
    put(length);
  }

  std::string text_;
  size_t at_ = 0;
  std::vector<std::string> tokens_;
};

// What the evaluation drops.
bool is_punctuation(const std::string& token) {
  static constexpr std::array<std::string_view, 12> kSingle = {"''", "'", "``", "`", "\"", ".",
                                                               "?",  "!", ",",  ":", ";",  "-"};
  if (std::find(kSingle.begin(), kSingle.end(), token) != kSingle.end()) return true;
  const bool run =
      token.size() >= 2 && std::all_of(token.begin(), token.end(), [&](char c) { return c == token[0]; });
  return run && (token[0] == '-' || token[0] == '.');
}

}  // namespace

std::string caption_tokens(std::string_view caption) {
  std::string out;
  for (const std::string& token : Cutter(plain_signs(caption)).cut()) {
    if (is_punctuation(token)) continue;
    if (!out.empty()) out += ' ';
    out += lower(token);
  }
  return out;
}

}  // namespace tessera::eval
