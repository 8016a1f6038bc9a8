#include "eval/captioning.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/text.h"
#include "text/unicode.h"

namespace tessera::eval {
namespace {

// Each of these is also recognised with any one apostrophe missing.
constexpr const char* kContractions =
    "ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't "
    "he'd "
    "he'd've he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't "
    "must've "
    "needn't not've o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've "
    "somebody'll somebody's someone'd someone'd've someone'll someone's something'd something'd've "
    "something'll "
    "that's there'd there'd've there're there's they'd they'd've they'll they're they've 'twas wasn't "
    "we'd've we've "
    "weren't what'll what're what's what've when's where'd where's where've who'd who'd've who'll who's "
    "who've why'll "
    "why're why's won't would've wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're "
    "you've";

const std::map<std::string, std::string>& contractions() {
  static const auto table = [] {
    std::map<std::string, std::string> all = {{"somebody'd", "somebodyd"}};  // as published
    for (const std::string& word : split(kContractions, ' '))
      for (size_t i = 0; i < word.size(); ++i)
        if (word[i] == '\'') all[word.substr(0, i) + word.substr(i + 1)] = word;
    return all;
  }();
  return table;
}

bool is_digit(char32_t c) { return tokens::category(c) == tokens::Category::Nd; }

// True for Python's white space.
bool is_blank(char32_t c) { return tokens::is_space(c) || (c >= 0x1C && c <= 0x1F); }

// True if the text has a comma between digits.
bool holds_grouped_number(std::u32string_view text) {
  for (size_t i = 1; i + 1 < text.size(); ++i)
    if (text[i] == ',' && is_digit(text[i - 1]) && is_digit(text[i + 1])) return true;
  return false;
}

std::u32string without_punctuation(const std::u32string& text) {
  constexpr std::u32string_view marks = U";/[]\"{}()=+\\_-><@`,?!";
  constexpr int kMostPeriods = 32;
  const bool grouped = holds_grouped_number(text);
  std::u32string out = text;
  for (const char32_t mark : marks) {
    const bool apart = text.find(std::u32string{mark, U' '}) != std::u32string::npos ||
                       text.find(std::u32string{U' ', mark}) != std::u32string::npos;
    if (apart || grouped)
      std::erase(out, mark);
    else
      std::replace(out.begin(), out.end(), mark, U' ');
  }
  std::u32string kept;
  int removed = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const bool goes =
        out[i] == '.' && (i + 1 == out.size() || !is_digit(out[i + 1])) && removed < kMostPeriods;
    removed += goes ? 1 : 0;
    if (!goes) kept += out[i];
  }
  return kept;
}

std::string plain_words(std::u32string_view text) {
  static const std::map<std::string, std::string> numbers = {
      {"none", "0"}, {"zero", "0"}, {"one", "1"},   {"two", "2"},   {"three", "3"}, {"four", "4"},
      {"five", "5"}, {"six", "6"},  {"seven", "7"}, {"eight", "8"}, {"nine", "9"},  {"ten", "10"}};
  std::u32string spaced = tokens::lower(text);
  std::replace_if(spaced.begin(), spaced.end(), is_blank, U' ');
  std::vector<std::string> words;
  for (std::string word : split(tokens::to_utf8(spaced), ' ')) {
    if (word.empty()) continue;
    if (const auto number = numbers.find(word); number != numbers.end()) word = number->second;
    if (word == "a" || word == "an" || word == "the") continue;
    const auto whole = contractions().find(word);
    words.push_back(whole == contractions().end() ? word : whole->second);
  }
  return join(words, " ");
}

std::u32string on_one_line(std::string_view answer) {
  std::u32string out = tokens::to_code_points_lossy(answer);
  for (char32_t& c : out)
    if (c == '\n' || c == '\t') c = ' ';
  while (!out.empty() && is_blank(out.back())) out.pop_back();
  out.erase(out.begin(), std::find_if_not(out.begin(), out.end(), is_blank));
  return out;
}

}  // namespace

std::string processed_answer(std::string_view answer) {
  return plain_words(without_punctuation(on_one_line(answer)));
}

double vqa_accuracy(std::string_view answer, std::span<const std::string> annotators) {
  if (annotators.empty()) return 0;
  const bool differ = std::set<std::string>(annotators.begin(), annotators.end()).size() > 1;
  const auto shown = [&](std::string_view text) {
    return plain_words(without_punctuation(tokens::to_code_points_lossy(text)));
  };
  const std::string own = differ ? processed_answer(answer) : std::string(answer);
  std::vector<bool> equal;
  for (const std::string& other : annotators) equal.push_back((differ ? shown(other) : other) == own);
  const auto all = std::count(equal.begin(), equal.end(), true);
  double sum = 0;
  for (const bool same : equal) sum += std::min(1.0, static_cast<double>(all - (same ? 1 : 0)) / 3);
  return sum / static_cast<double>(annotators.size());
}

}  // namespace tessera::eval
