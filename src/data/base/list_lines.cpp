#include "data/base/list_lines.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/base/table_columns.h"
#include "io/files/path.h"

namespace tessera::data {
namespace {

constexpr std::string_view kBlanks = " \t";

std::string_view without_quotes(std::string_view words) {
  const bool quoted = words.size() >= 2 && (words[0] == '"' || words[0] == '\'') && words.back() == words[0];
  return quoted ? words.substr(1, words.size() - 2) : words;
}

// Returns the end of the last image suffix before a blank or the end; npos if there is none.
size_t image_end(std::string_view words) {
  for (size_t gap = words.size(); gap != std::string_view::npos && gap > 0;) {
    if (has_picture_extension(words.substr(0, gap))) return gap;
    gap = words.find_last_of(kBlanks, gap - 1);
  }
  return std::string_view::npos;
}

// Returns the length of the path at the start of a line, with its quotes; npos if the line is one word.
size_t path_length(std::string_view words) {
  if (words[0] == '"' || words[0] == '\'')
    if (const size_t end = words.find(words[0], 1); end != std::string_view::npos) return end + 1;
  const size_t end = image_end(words);
  return end == std::string_view::npos ? words.find_last_of(kBlanks) : end;
}

bool is_comment(std::string_view words) {
  return words.starts_with('#') && image_end(words) == std::string_view::npos;
}

bool has_image_at_end(std::string_view words) { return has_picture_extension(without_quotes(words)); }

// True for one word with folders, as "apple_pie/1005649" of a list of images without suffix.
bool is_path(std::string_view words) {
  return words.find_first_of(kBlanks) == std::string_view::npos && words.find('/') != std::string_view::npos;
}

std::string_view first_word(std::string_view words) { return words.substr(0, words.find_first_of(kBlanks)); }

// True if two or more numbers follow the first word: "Abyssinian_100 1 1 1" is no path "Abyssinian_100 1 1".
bool has_numbers_alone(std::string_view words) {
  const std::string_view first = first_word(words), rest = trim(words.substr(first.size()));
  const std::vector<std::string> parts = split(rest, ' ');
  return image_end(words) == std::string_view::npos && parts.size() > 1 &&
         std::ranges::all_of(parts,
                             [](const std::string& part) { return parse_double(trim(part)).has_value(); });
}

// Returns the words of a label after its path. Throws for several numbers, or for a number and a word, which may be
// labels, boxes or a split.
std::string checked_label(std::string_view rest, const std::string& where) {
  const std::string_view label = without_quotes(rest);
  if (label.size() == rest.size() && parse_double(first_word(rest)) &&
      rest.find_first_of(kBlanks) != std::string_view::npos)
    fail(where, " has '", printable(rest.substr(0, 60)),
         "' after the path, must be one label; several belong in a table, as in 'a.jpg,0|1'");
  return std::string(label);
}

// Throws if a line is a label and an image that exists, instead of the name of one.
void refuse_label_first(const std::string& line, const std::string& where, const std::string& list) {
  const std::string_view words = line, first = first_word(words);
  const std::string rest = portable_path(std::string(trim(words.substr(first.size()))));
  const auto exists = [&](const std::string& path) {
    std::error_code error;
    return std::filesystem::is_regular_file(std::filesystem::path(image_folder(list, path)) / path, error);
  };
  if (first.size() < words.size() && !has_picture_extension(first) && exists(rest) &&
      !exists(portable_path(line)))
    fail(where, " is '", printable(words.substr(0, 60)), "', must be a path and a label, in this order");
}

}  // namespace

ListLines read_list_lines(const std::string& content, const std::string& name) {
  ListLines list;
  std::vector<std::pair<int64_t, std::string>> lines;
  int64_t number = 0;
  for (const std::string& line : split(content, '\n')) {
    const std::string_view words = trim(line);
    ++number;
    const bool titles = lines.empty() && divides_titles(words, ' ');
    if (!words.empty() && !is_comment(words) && !titles) lines.emplace_back(number, words);
  }
  if (lines.empty()) fail(name, " is empty");
  const auto all = [&](auto&& is_so) {
    return std::ranges::all_of(lines, [&](const auto& line) { return is_so(std::string_view(line.second)); });
  };
  list.labelled = !all(has_image_at_end) && !all(is_path);
  if (!list.labelled) refuse_label_first(lines[0].second, text(name, " line ", lines[0].first), name);
  for (const auto& [at, words] : lines) try {
      const std::string where = text(name, " line ", at);
      ListLine line{at, std::string(without_quotes(words)), ""};
      if (list.labelled) {
        const size_t length = has_numbers_alone(words) ? first_word(words).size() : path_length(words);
        const std::string_view all_words = words;
        const std::string_view rest = trim(all_words.substr(std::min(length, words.size())));
        if (rest.empty())
          fail(where, " is '", printable(all_words.substr(0, 60)), "', must be a path and a label");
        line.path = without_quotes(trim(all_words.substr(0, length)));
        line.label = checked_label(rest, where);
      }
      list.lines.push_back(std::move(line));
    } catch (const Error& error) {
      list.problems.add(error.what());
    }
  return list;
}

}  // namespace tessera::data
