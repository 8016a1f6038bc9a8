#include "data/base/table_labels.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_labels.h"

namespace tessera::data {

std::optional<bool> read_mark(std::string_view cell, bool signs) {
  const std::string mark = lower(without_fraction(trim(cell)));
  if (signs && mark == "-1") return false;
  if (mark == "1" || mark == "true") return true;
  return mark == "0" || mark == "false" ? std::optional(false) : std::nullopt;
}

namespace {

// Returns the labels of Label Studio's cells of several choices, {"choices": ["cat", "dog"]}; none for other cells.
std::vector<std::string> choices_in(std::string_view cell) {
  if (!cell.starts_with("{\"choices\"")) return {};
  const nlohmann::json tree = nlohmann::json::parse(cell, nullptr, /*allow_exceptions=*/false);
  if (!tree.is_object() || !tree["choices"].is_array()) return {};
  std::vector<std::string> words;
  for (const nlohmann::json& one : tree["choices"])
    if (one.is_string()) words.emplace_back(trim(one.get_ref<const std::string&>()));
  return words;
}

}  // namespace

bool is_bracketed(std::string_view cell) {
  return (cell.size() >= 2 && cell.starts_with('[') && cell.ends_with(']')) || !choices_in(cell).empty();
}

void refuse_objects(std::string_view cell, const std::string& where) {
  if (cell.starts_with("[{"))
    fail(where,
         ": the label is a list of objects, must be a class; for detectors export COCO, Pascal VOC or YOLO");
}

namespace {

// Returns the words of a cell that blanks separate.
std::vector<std::string> blank_words(std::string_view cell) {
  std::vector<std::string> words = split(cell, ' ');
  std::erase_if(words, [](const std::string& word) { return trim(word).empty(); });
  return words;
}

bool are_numbers(const std::vector<std::string>& words) {
  return std::ranges::all_of(words,
                             [](const std::string& word) { return parse_int(trim(word)).has_value(); });
}

using Cells = std::set<std::string_view>;

// True if blanks separate the labels of cells. Those of words are in several cells, and some alone unless they are tags.
bool blanks_divide(const Cells& cells, bool words_too, bool tags) {
  std::map<std::string, int64_t, std::less<>> counts;
  bool several = false, numbers = true, alone = tags;
  for (const std::string_view cell : cells) {
    const std::vector<std::string> words = blank_words(cell);
    several = several || words.size() > 1;
    numbers = numbers && are_numbers(words);
    for (const std::string& word : std::set<std::string>(words.begin(), words.end())) ++counts[word];
  }
  if (!several || numbers || !words_too) return several && numbers;
  for (const std::string_view cell : cells)
    if (const std::vector<std::string> words = blank_words(cell); words.size() > 1)
      for (const std::string& word : words) {
        if (counts[word] < 2) return false;
        alone = alone || cells.contains(word);
      }
  return alone;
}

}  // namespace

std::vector<std::string> label_words(std::string_view cell, char separator) {
  if (std::vector<std::string> choices = choices_in(cell); !choices.empty()) return choices;
  const bool brackets = is_bracketed(cell);
  if (brackets) {
    cell = cell.substr(1, cell.size() - 2);
    separator = cell.find(',') == std::string_view::npos && are_numbers(blank_words(cell)) ? ' ' : ',';
  }
  std::vector<std::string> words;
  for (const std::string& part : split(cell, separator)) {
    std::string_view word = trim(part);
    const bool quoted =
        brackets && word.size() >= 2 && (word[0] == '"' || word[0] == '\'') && word.back() == word[0];
    if (quoted) word = trim(word.substr(1, word.size() - 2));
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

char label_separator(const std::vector<CsvRow>& rows, const TableColumns& columns) {
  Cells cells;
  for (size_t i = columns.header ? 1 : 0; i < rows.size(); ++i)
    if (columns.label < rows[i].fields.size()) cells.insert(trim(rows[i].fields[columns.label]));
  const auto divides = [&](char separator) {
    return std::ranges::any_of(cells, [&](std::string_view cell) {
      if (cell.find(separator) == std::string_view::npos) return false;
      const std::vector<std::string> parts = split(cell, separator);
      return std::ranges::any_of(parts, [&](const std::string& part) { return cells.contains(trim(part)); });
    });
  };
  for (const char separator : {';', ','})
    if (columns.labels_title && divides(separator)) return separator;
  const bool tags = columns.header && lower(trim(rows[0].fields[columns.label])) == "tags";
  return blanks_divide(cells, columns.labels_title, tags) ? ' ' : '|';
}

std::string_view class_of_boxes(std::string_view cell) {
  const std::vector<std::string> words = split(cell, ' ');
  const auto is_synset = [](const std::string& word) {
    return word.size() == 9 && word[0] == 'n' && parse_int(std::string_view(word).substr(1));
  };
  if (words.size() < 5 || words.size() % 5 != 0) return cell;
  for (size_t i = 0; i < words.size(); ++i)
    if (i % 5 == 0 ? !is_synset(words[i]) : !parse_int(without_fraction(words[i]))) return cell;
  return cell.substr(0, words[0].size());
}

std::string name_member(const nlohmann::json& entry) {
  constexpr std::array kNames = {"class_name", "classname", "label_name", "category_name",
                                 "label_text", "class",     "category"};
  const nlohmann::json* label = label_member(entry);
  if (!label || label->is_string()) return "";
  for (const char* name : kNames)
    if (const auto found = entry.find(name); found != entry.end() && &*found != label && found->is_string())
      return std::string(trim(found->get_ref<const std::string&>()));
  return "";
}

void NumberNames::add(const std::vector<std::string>& labels, const std::string& name) {
  if (broken_ || labels.size() != 1 || name.empty()) {
    broken_ = true;
    return;
  }
  const auto number = parse_int(without_fraction(labels[0]));
  numbers_ = numbers_ && number.has_value();
  const std::string label = number ? std::to_string(*number) : labels[0];
  broken_ = names_.try_emplace(label, name).first->second != name ||
            labels_.try_emplace(name, label).first->second != label;
}

std::vector<std::string> NumberNames::classes() const {
  std::vector<int64_t> numbers;
  for (const auto& [label, name] : names_) numbers.push_back(parse_int(label).value_or(-1));
  std::vector<std::string> classes = classes_of_numbers(std::move(numbers));
  for (std::string& one : classes)
    if (const auto found = names_.find(one); found != names_.end()) one = found->second;
  return classes;
}

}  // namespace tessera::data
