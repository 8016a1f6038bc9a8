#include "data/base/list_lines.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/base/table_columns.h"
#include "io/files/file.h"
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

// True for a number and the name of a split, "3 train".
bool is_number_of_split(std::string_view words) {
  const std::string_view first = first_word(words), rest = trim(words.substr(first.size()));
  return parse_double(first) && rest.find_first_of(kBlanks) == std::string_view::npos &&
         split_of_name(rest).has_value();
}

// Returns the words of a label after its path. Throws for several numbers, or for a number and a word that names no split:
// these may be labels or boxes.
std::string checked_label(std::string_view rest, const std::string& where) {
  const std::string_view label = without_quotes(rest);
  if (label.size() == rest.size() && parse_double(first_word(rest)) &&
      rest.find_first_of(kBlanks) != std::string_view::npos && !is_number_of_split(rest))
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

using NumberedLines = std::vector<std::pair<int64_t, std::string>>;  // with the number of the line
using Words = std::map<std::string, std::string, std::less<>>;

// Returns the lines of a list that are no comments, blanks or titles.
NumberedLines lines_of(const std::string& content) {
  NumberedLines lines;
  int64_t number = 0;
  for (const std::string& line : split(content, '\n')) {
    const std::string_view words = trim(line);
    ++number;
    const bool titles = lines.empty() && divides_titles(words, ' ');
    if (!words.empty() && !is_comment(words) && !titles) lines.emplace_back(number, words);
  }
  return lines;
}

// Returns the words after the first of each line of a file next to another, by that first word. Empty without the file.
Words words_next_to(const std::string& list, const char* name) {
  const std::string path = std::filesystem::path(list).replace_filename(name).string();
  Words words;
  if (!file_exists(path)) return words;
  for (const auto& [number, line] : lines_of(read_list_text(path))) {
    const std::string_view first = first_word(line);
    words.emplace(first, trim(std::string_view(line).substr(first.size())));
  }
  return words;
}

// Reads images.txt and the lists next to it, which have a line for each of its numbers.
ListLines read_numbered_lists(const NumberedLines& lines, const std::string& name) {
  const Words labels = words_next_to(name, "image_class_labels.txt"),
              classes = words_next_to(name, "classes.txt"),
              splits = words_next_to(name, "train_test_split.txt");
  ListLines list;
  list.has_split = !splits.empty();
  for (const auto& [at, words] : lines) {
    const std::string_view number = first_word(words);
    const auto label = labels.find(number), part = splits.find(number);
    if (label == labels.end() || (list.has_split && part == splits.end())) {
      list.problems.add(name, " line ", at, ": '", printable(number.substr(0, 60)), "' is in no line of ",
                        label == labels.end() ? "image_class_labels.txt" : "train_test_split.txt",
                        " next to it");
      continue;
    }
    ListLine line{at, std::string(trim(std::string_view(words).substr(number.size()))), label->second};
    if (const auto known = classes.find(label->second); known != classes.end()) line.name = known->second;
    if (list.has_split) line.split = part->second == "1" ? Split::train : Split::validation;
    list.lines.push_back(std::move(line));
  }
  return list;
}

// Reads a list of Oxford-IIIT Pet, "Abyssinian_100 1 1 1": the class's number follows the image, which begins with the
// class's name; species and breed follow. Returns no lines for other lists.
ListLines read_pets(const NumberedLines& lines) {
  ListLines list;
  std::map<std::string, std::string> names, numbers;
  for (const auto& [at, line] : lines) {
    const std::vector<std::string> words = split(line, ' ');
    const std::string class_name = words[0].substr(0, words[0].rfind('_'));
    const bool fits = words.size() == 4 && parse_int(words[1]) && (words[2] == "1" || words[2] == "2") &&
                      parse_int(words[3]) && class_name.size() < words[0].size() &&
                      names.emplace(words[1], class_name).first->second == class_name &&
                      numbers.emplace(class_name, words[1]).first->second == words[1];
    if (!fits) return {};
    list.lines.push_back({at, words[0], words[1], class_name});
  }
  return list;
}

// True if a line is an image without suffix and its class of several words, as FGVC Aircraft's.
bool has_names_with_blanks(const std::string& line, const std::string& list) {
  if (image_end(line) != std::string_view::npos) return false;
  const auto exists = [&](std::string_view path) {
    const std::string first = portable_path(std::string(path));
    const std::filesystem::path root = image_folder(list, first);
    std::error_code error;
    return std::filesystem::is_regular_file(root / with_suffix(root.string(), first), error);
  };
  const std::string_view words = line;
  return exists(first_word(words)) && !exists(words.substr(0, path_length(words)));
}

// Takes the last words of all labels as splits if they are names of both, "a.jpg cat train", or follow numbers,
// "a.jpg 3 train". A number with such a word is a problem if other lines have none.
void take_splits(ListLines& list, const std::string& name) {
  const auto blank = [](const ListLine& line) { return line.label.find_last_of(kBlanks); };
  const auto last = [&](const ListLine& line) {
    return std::string_view(line.label).substr(blank(line) + 1);
  };
  int64_t trains = 0, named = 0, numbers = 0;
  for (const ListLine& line : list.lines) {
    const auto split = blank(line) == std::string::npos ? std::nullopt : split_of_name(last(line));
    named += split.has_value(), trains += split == Split::train, numbers += is_number_of_split(line.label);
  }
  const auto all = std::ssize(list.lines);
  if (named < all || (numbers < all && (trains == 0 || trains == all))) {
    std::erase_if(list.lines, [&](const ListLine& line) {
      const bool odd = is_number_of_split(line.label);
      if (odd)
        list.problems.add(name, " line ", line.number, " has the split '", last(line),
                          "' after its label, unlike others");
      return odd;
    });
    return;
  }
  list.has_split = trains > 0 && trains < all;
  for (ListLine& line : list.lines) {
    if (list.has_split) line.split = split_of_name(last(line)), line.test = is_test_name(last(line));
    line.label = trim(std::string_view(line.label).substr(0, blank(line)));
  }
}

}  // namespace

bool has_numbered_lists(const std::string& folder) {
  const std::filesystem::path root = folder;
  return file_exists((root / "images.txt").string()) &&
         file_exists((root / "image_class_labels.txt").string());
}

ListLines read_list_lines(const std::string& content, const std::string& name) {
  const NumberedLines lines = lines_of(content);
  if (lines.empty()) fail(name, " is empty");
  const std::filesystem::path file = name;
  if (file.filename() == "images.txt" && has_numbered_lists(file.parent_path().string()))
    return read_numbered_lists(lines, name);
  if (ListLines pets = read_pets(lines); !pets.lines.empty()) return pets;
  ListLines list;
  const auto all = [&](auto&& is_so) {
    return std::ranges::all_of(lines, [&](const auto& line) { return is_so(std::string_view(line.second)); });
  };
  list.labelled = !all(has_image_at_end) && !all(is_path);
  if (!list.labelled) refuse_label_first(lines[0].second, text(name, " line ", lines[0].first), name);
  const auto wide =
      std::ranges::find_if(lines, [](const auto& line) { return split(line.second, ' ').size() > 2; });
  const bool first_alone = list.labelled && wide != lines.end() && has_names_with_blanks(wide->second, name);
  for (const auto& [at, words] : lines) try {
      const std::string where = text(name, " line ", at);
      ListLine line{at, std::string(without_quotes(words)), ""};
      if (list.labelled) {
        const bool first = first_alone || has_numbers_alone(words);
        const size_t length = first ? first_word(words).size() : path_length(words);
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
  take_splits(list, name);
  return list;
}

}  // namespace tessera::data
