#include "data/base/source_kinds.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/error.h"
#include "core/text.h"

namespace tessera::data {
namespace {

struct Word {
  std::string_view name;
  Split split;
};
// In order of preference within a split.
constexpr std::array kWords = {Word{"train", Split::train},        Word{"training", Split::train},
                               Word{"trn", Split::train},          Word{"trainval", Split::train},
                               Word{"val", Split::validation},     Word{"validation", Split::validation},
                               Word{"valid", Split::validation},   Word{"dev", Split::validation},
                               Word{"eval", Split::validation},    Word{"evaluation", Split::validation},
                               Word{"holdout", Split::validation}, Word{"heldout", Split::validation},
                               Word{"test", Split::validation},    Word{"testing", Split::validation},
                               Word{"tst", Split::validation}};

// Returns the place of a word in the list, or its size.
size_t place_of(std::string_view word) {
  return static_cast<size_t>(std::ranges::find(kWords, word, &Word::name) - kWords.begin());
}

// Returns the letters of a name in lower case, separated by everything else.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    const bool hump = std::isupper(c) && i > 0 && std::islower(static_cast<unsigned char>(name[i - 1]));
    if ((hump || !std::isalpha(c)) && !words.back().empty()) words.emplace_back();
    if (std::isalpha(c)) words.back() += static_cast<char>(std::tolower(c));
  }
  for (std::string& word : words)
    for (const std::string_view ending : {"set", "data"})
      if (word.ends_with(ending) && word.size() > ending.size()) word.resize(word.size() - ending.size());
  return words;
}

// Returns the first place of a name's words in the list, or its size. "hold-out" is one word.
size_t first_place(std::string_view name) {
  size_t first = kWords.size();
  std::string before;
  for (const std::string& word : words_of(name)) {
    first = std::min({first, place_of(word), word == "out" ? place_of(before + word) : kWords.size()});
    before = word;
  }
  return first;
}

}  // namespace

std::optional<Split> split_of_name(std::string_view name) {
  const size_t place = first_place(name);
  return place == kWords.size() ? std::nullopt : std::optional(kWords[place].split);
}

bool is_test_name(std::string_view name) {
  const size_t place = first_place(name);
  return place < kWords.size() && place >= place_of("test");
}

std::string split_folder(const std::vector<std::string>& folders, Split split, const std::string& where) {
  for (const Word& word : kWords)
    for (const std::string& folder : folders)
      if (word.split == split && lower(folder) == word.name) return folder;
  std::vector<std::pair<size_t, std::string>> found;
  for (const std::string& folder : folders)
    if (split_of_name(folder) == split) found.emplace_back(first_place(folder), folder);
  std::sort(found.begin(), found.end());
  if (found.size() > 1 && found[0].first == found[1].first)
    fail(where, " has several folders of one split, '", found[0].second, "' and '", found[1].second,
         "': give the data and the validation data apart");
  return found.empty() ? "" : found[0].second;
}

}  // namespace tessera::data
