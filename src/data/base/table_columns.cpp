#include "data/base/table_columns.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_labels.h"
#include "data/base/table_labels.h"

namespace tessera::data {
namespace {

// Titles in lower case. Those of a later list count only if no column has one of an earlier list.
using Titles = std::span<const std::string_view>;
constexpr std::array<std::string_view, 5> kPath = {"path", "file", "filename", "filepath", "image"};
constexpr std::array<std::string_view, 18> kRarerPath = {
    "file_name",    "file_path",      "image_path",  "img",    "img_path", "image_name", "image_file",
    "filenames",    "filepaths",      "images",      "fname",  "image_id", "id_code",    "img_name",
    "img_filename", "image_filename", "image_index", "imageid"};
constexpr std::array<std::string_view, 1> kRarestPath = {"id"};
constexpr std::array<std::string_view, 5> kLabel = {"label", "labels", "class", "target", "tags"};
constexpr std::array<std::string_view, 21> kRarerLabel = {
    "class_name",  "category",         "category_name",  "class_label", "label_name",
    "class_id",    "label_id",         "breed",          "species",     "diagnosis",
    "dx",          "class_idx",        "label_idx",      "class_index", "ground_truth",
    "category_id", "predictionstring", "finding_labels", "cls",         "classid",
    "choice"};
constexpr std::array<std::string_view, 1> kRarestLabel = {"y"};  // unless there is a column "x"
constexpr std::array<std::string_view, 3> kName = {"class_name", "label_name", "category_name"};
constexpr std::array<std::string_view, 1> kSplit = {"split"};
constexpr std::array<std::string_view, 4> kSplitFlag = {"is_valid", "is_val", "is_validation", "is_test"};
constexpr std::array<std::string_view, 3> kTrainFlag = {"is_training_image", "is_train", "is_training"};
constexpr std::array<std::string_view, 2> kCaption = {"caption", "captions"};
constexpr std::array<std::string_view, 1> kRarerCaption = {"comment"};

// Returns a title's letters: "Class Name" and "class_name" are "classname".
std::string letters_of(std::string_view title) {
  std::string letters(title);
  std::erase_if(letters, [](char c) { return c == '_' || c == ' ' || c == '-'; });
  return letters;
}

// Returns the first column with a title of the first list that has any.
size_t find_column(const std::vector<std::string>& titles, std::initializer_list<Titles> lists) {
  for (const Titles& words : lists)
    for (size_t i = 0; i < titles.size(); ++i)
      if (std::ranges::any_of(words, [&](auto word) { return letters_of(word) == letters_of(titles[i]); }))
        return i;
  return kNoColumn;
}

std::vector<std::string> titles_of(const std::vector<std::string>& fields) {
  std::vector<std::string> titles;
  for (const std::string& field : fields) titles.push_back(lower(trim(field)));
  return titles;
}

size_t path_column(const std::vector<std::string>& titles) {
  return find_column(titles, {kPath, kRarerPath, kRarestPath});
}
size_t label_column(const std::vector<std::string>& titles) {
  return find_column(titles, {kLabel, kRarerLabel});
}
// Returns the same next to a usual title of the images.
size_t titled_label(const std::vector<std::string>& titles) {
  const size_t usual = label_column(titles);
  const bool points = std::ranges::count(titles, "x") > 0;
  return usual == kNoColumn && !points ? find_column(titles, {kRarestLabel}) : usual;
}

// Returns the column of captions, or those with numbers: caption_0, caption1.
std::vector<size_t> caption_columns(const std::vector<std::string>& titles) {
  if (const size_t usual = find_column(titles, {kCaption, kRarerCaption}); usual != kNoColumn) return {usual};
  std::vector<size_t> found;
  for (size_t i = 0; i < titles.size(); ++i)
    if (const std::string letters = letters_of(titles[i]);
        letters.starts_with(kCaption[0]) && parse_int(letters.substr(kCaption[0].size())))
      found.push_back(i);
  return found;
}

// True if a column counts the rows from `first_row` on, from 0 or 1.
bool counts_rows(const std::vector<CsvRow>& rows, size_t column, size_t first_row = 0) {
  if (rows.size() <= first_row || column >= rows[first_row].fields.size()) return false;
  const auto first = parse_int(trim(rows[first_row].fields[column]));
  for (size_t i = first_row; i < rows.size(); ++i)
    if (column >= rows[i].fields.size() || !first || *first > 1 ||
        parse_int(trim(rows[i].fields[column])) != *first + static_cast<int64_t>(i - first_row))
      return false;
  return true;
}

// Returns the only column that has images in all rows after the titles, if the first row has none.
size_t image_column(const std::vector<CsvRow>& rows) {
  const auto is_image = [](const std::string& field) { return has_picture_extension(trim(field)); };
  if (rows.size() < 2 || std::ranges::any_of(rows[0].fields, is_image)) return kNoColumn;
  size_t found = kNoColumn;
  for (size_t i = 0; i < rows[0].fields.size(); ++i) {
    const bool all = std::all_of(rows.begin() + 1, rows.end(), [&](const CsvRow& row) {
      return i < row.fields.size() && is_image(row.fields[i]);
    });
    if (all && found != kNoColumn) return kNoColumn;
    if (all) found = i;
  }
  return found;
}

// The splits that a column names from a row on; none if a cell is no name of a split.
std::set<Split> splits_in(const std::vector<CsvRow>& rows, size_t column, size_t first_row) {
  std::set<Split> found;
  for (size_t i = first_row; i < rows.size(); ++i) {
    if (rows[i].fields.size() <= column) continue;
    const auto split = split_of_name(trim(rows[i].fields[column]));
    if (!split) return {};
    found.insert(*split);
  }
  return found;
}

// Rows of a detector's table name an image once for each of its boxes, which would become images with a class each.
void refuse_boxes(const std::vector<CsvRow>& rows, size_t path, const std::string& columns,
                  const std::string& name) {
  std::set<std::string_view> seen;
  for (const CsvRow& row : rows)
    if (row.fields.size() > path && !seen.insert(row.fields[path]).second)
      fail(name, " line ", row.line, ": a second box of '", printable(row.fields[path], 60), "' (", columns,
           "): boxes must be in files of COCO, Pascal VOC or YOLO");
}

// Finds the columns of images, labels and splits of a table without titles. The label is the only other column, except
// counts of the rows, or the only one of those that holds words.
void find_untitled(const std::vector<CsvRow>& rows, TableColumns& columns, const std::string& name) {
  const std::vector<std::string>& fields = rows[0].fields;
  columns.count = fields.size(), columns.path = columns.label = kNoColumn;
  std::vector<size_t> others, words;
  for (size_t i = 0; i < fields.size(); ++i)
    if (has_picture_extension(trim(fields[i]))) {
      if (columns.path != kNoColumn)
        fail(name, " line ", rows[0].line, " has two images, '", printable(fields[columns.path], 60),
             "' and '", printable(fields[i], 60),
             "': the first line must be titles, 'path' over one of them");
      columns.path = i;
    } else if (const auto splits = splits_in(rows, i, 0); !splits.empty()) {
      if (splits.size() == 2 && columns.split == kNoColumn) columns.split = i;
    } else if (!counts_rows(rows, i)) {
      (parse_double(trim(fields[i])) ? others : words).push_back(i);
    }
  if (columns.path == kNoColumn) return;
  if (words.size() == 1)
    columns.label = words[0];
  else if (words.empty() && others.size() == 1)
    columns.label = others[0];
  if (others.size() > 1) {
    refuse_boxes(rows, columns.path, "columns of numbers", name);
    columns.remarks.push_back(text(name, ": ", others.size(), " columns of numbers are not read"));
  }
}

// Returns the columns of a table without titles: path and label, or a path with the number of its caption.
TableColumns without_titles(const std::vector<std::string>& titles, const std::vector<CsvRow>& rows,
                            const std::string& name) {
  TableColumns columns;
  columns.header = false;
  if (titles.size() == 2 && without_number(titles[0]).size() < titles[0].size()) {
    columns.label = kNoColumn, columns.captions = {1};
    return columns;
  }
  const bool images_follow = rows.size() > 1 && has_picture_extension(trim(rows[1].fields[0]));
  if ((images_follow || label_column(titles) != kNoColumn) && !has_picture_extension(titles[0]))
    fail(name, " starts with titles, '", printable(titles[0], 60),
         "' and so on, but none of them is 'path': the ", "column of the images' files must be called so");
  if (titles.size() == 2 && !has_picture_extension(titles[1])) {
    if (splits_in(rows, 1, 0).size() == 2) columns.split = 1, columns.label = kNoColumn;
    return columns;
  }
  find_untitled(rows, columns, name);
  if (columns.label == kNoColumn)
    fail(name, " has ", titles.size(),
         " columns and no title 'path'; must have two (path, label) or such a header");
  return columns;
}

// Returns the column of splits: one with a usual title, or by any other title (`mode`, `Usage`) the one with names of both
// splits alone.
size_t split_column(const std::vector<std::string>& titles, const std::vector<CsvRow>& rows,
                    const TableColumns& columns) {
  if (const size_t usual = find_column(titles, {kSplit}); usual != kNoColumn) return usual;
  for (size_t i = 0; i < titles.size(); ++i)
    if (i != columns.path && i != columns.label && splits_in(rows, i, 1).size() == 2) return i;
  return kNoColumn;
}

// Returns another column with a usual title of labels: first of names.
size_t name_column(std::vector<std::string> titles, size_t label) {
  titles[label] = "";
  return find_column(titles, {kName, kLabel, kRarerLabel});
}

// Returns the column of splits by number: `partition` with the training images' 0 and another split, as in CelebA, or
// `split` with 0, 1 and 2, as in WILDS. Other numbers in `split` are refused: they may be folds or mark training images.
size_t numbered_split_column(const std::vector<std::string>& titles, const std::vector<CsvRow>& rows,
                             const std::string& name, std::vector<std::string>& remarks) {
  constexpr std::array<std::string_view, 1> kNumbered = {"partition"};
  using Values = std::set<std::string_view>;
  const auto values_of = [&](size_t column) {
    Values values;
    for (size_t i = 1; column != kNoColumn && i < rows.size(); ++i)
      if (column < rows[i].fields.size()) values.insert(without_fraction(trim(rows[i].fields[column])));
    values.erase("");
    return values;
  };
  const size_t split = find_column(titles, {kSplit}), column = find_column(titles, {kNumbered});
  if (const Values values = values_of(split); !values.empty() && parse_int(*values.begin())) {
    if (values != Values{"0", "1", "2"})
      fail(name, ": the column 'split' has the numbers ",
           some_of(std::vector<std::string>(values.begin(), values.end())),
           ", must have train, val or test, or 0, 1 and 2 for these; if 0 is train and 1 val, ",
           "its title must be 'partition'");
    remarks.push_back(text(name, ": 0, 1 and 2 in the column 'split' are read as train, val and test"));
    return split;
  }
  Values values = values_of(column);
  for (const std::string_view held_out : {"1", "2"})
    if (values.erase(held_out) > 0 && values == Values{"0"}) return column;
  return kNoColumn;
}

// Sets the column of splits, or of marks of one split.
void find_split(const std::vector<std::string>& titles, const std::vector<CsvRow>& rows,
                const std::string& name, TableColumns& columns) {
  columns.split = numbered_split_column(titles, rows, name, columns.remarks);
  columns.numbered_split = columns.split != kNoColumn;
  if (columns.split == kNoColumn) columns.split = split_column(titles, rows, columns);
  if (columns.split != kNoColumn) return;
  for (const auto& [words, flagged] :
       {std::pair(Titles(kSplitFlag), Split::validation), std::pair(Titles(kTrainFlag), Split::train)})
    if (const size_t flag = find_column(titles, {words}); flag != kNoColumn) {
      columns.split = flag, columns.flagged = flagged;
      return;
    }
}

// True if columns mark classes by 1 and -1, as in CelebA: no column with a -1 has a 0 too.
bool holds_signs(const std::vector<CsvRow>& rows, const std::vector<size_t>& columns) {
  const auto has = [&](size_t column, const std::string_view mark) {
    return std::any_of(rows.begin() + 1, rows.end(), [&](const CsvRow& row) {
      return column < row.fields.size() && trim(row.fields[column]) == mark;
    });
  };
  const auto signs = std::ranges::count_if(columns, [&](size_t column) { return has(column, "-1"); });
  return signs > 0 && std::ranges::none_of(columns, [&](size_t c) { return has(c, "-1") && has(c, "0"); });
}

// True if at least half of a column's cells are marks: 0, 1, True or False.
bool holds_marks(const std::vector<CsvRow>& rows, size_t column, bool signs) {
  const auto marks = std::count_if(rows.begin() + 1, rows.end(), [&](const CsvRow& row) {
    return column < row.fields.size() && read_mark(row.fields[column], signs);
  });
  return 2 * marks >= std::ssize(rows) - 1;
}

// Leaves out those columns of classes that hold no marks.
void keep_marked(const std::vector<CsvRow>& rows, TableColumns& columns) {
  columns.signs = holds_signs(rows, columns.classes);
  std::erase_if(columns.classes, [&](size_t column) {
    if (holds_marks(rows, column, columns.signs)) return false;
    columns.unmarked.emplace_back(trim(rows[0].fields[column]));
    return true;
  });
}

// The index that pandas writes has no title, or "Unnamed: 0" when it was read and written again.
bool is_index(const std::string& title) { return title.empty() || title.starts_with("unnamed:"); }

// True if a column may hold the label of each image: single words or whole numbers, and not another file or an id.
bool may_be_label(const std::vector<CsvRow>& rows, size_t column) {
  std::set<std::string_view> distinct;
  size_t words = 0, cells = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    if (column >= rows[i].fields.size()) continue;
    const std::string_view cell = trim(rows[i].fields[column]);
    if (cell.empty() || has_picture_extension(cell) || cell.find('/') != std::string_view::npos ||
        (parse_double(cell) && !parse_int(without_fraction(cell))))
      return false;
    distinct.insert(cell);
    ++cells, words += 1 + static_cast<size_t>(std::ranges::count(cell, ' '));
  }
  return distinct.size() > 1 && distinct.size() < cells && words < 3 * cells;
}

// Sets the columns of classes if no column has a usual title of labels or captions: those of marks, or the only other
// one.
void find_classes(const std::vector<std::string>& titles, const std::vector<CsvRow>& rows,
                  const std::string& name, TableColumns& columns) {
  std::vector<size_t> others;
  for (size_t i = 0; i < titles.size(); ++i)
    if (i != columns.path && i != columns.split && !is_index(titles[i])) others.push_back(i);
  columns.classes = others;
  std::erase_if(others, [&](size_t i) { return counts_rows(rows, i, 1); });
  const auto alone = others.size() == 1 ? others.front() : kNoColumn;
  constexpr std::array kTexts = {"title", "text", "description", "prompt", "sentence"};  // OpenCLIP's tables
  if (alone != kNoColumn && std::ranges::count(kTexts, titles[alone]) > 0) {
    columns.captions = {alone};
    return columns.classes.clear();
  }
  if (alone != kNoColumn && may_be_label(rows, alone)) {
    columns.label = alone;
    columns.remarks.push_back(text(name, ": the column '", printable(titles[alone], 40),
                                   "' has the labels, as the only other one"));
    return columns.classes.clear();
  }
  const bool any = !columns.classes.empty();
  keep_marked(rows, columns);
  if (any && columns.classes.size() < 2)
    fail(name, " has no column titled 'label' or 'caption', nor two or more of 0 and 1; the titles are ",
         some_of(titles));
}

}  // namespace

TableColumns find_columns(const std::vector<CsvRow>& rows, const std::string& name) {
  const std::vector<std::string> titles = titles_of(rows[0].fields);
  TableColumns columns;
  columns.path = has_picture_extension(without_number(titles[0])) ? kNoColumn : path_column(titles);
  if (columns.path == kNoColumn) {
    columns.path = image_column(rows);
    if (columns.path == kNoColumn) return without_titles(titles, rows, name);
    columns.remarks.push_back(
        text(name, ": the column '", printable(titles[columns.path], 40), "' has the images"));
  }
  columns.count = titles.size();
  columns.label = titled_label(titles);
  find_split(titles, rows, name, columns);
  columns.captions = caption_columns(titles);
  constexpr std::array<std::string_view, 3> kBox = {"xmin", "x_min", "bbox"};
  if (const size_t box = find_column(titles, {kBox}); box != kNoColumn) {
    refuse_boxes(rows, columns.path, text("column '", titles[box], "'"), name);
    columns.remarks.push_back(text(name, ": the box of each image (column '", titles[box], "') is not read"));
  }
  if (columns.label != kNoColumn) {
    columns.labels_title = titles[columns.label] == "labels" || titles[columns.label] == "tags";
    columns.name = name_column(titles, columns.label);
    return columns;
  }
  if (columns.captions.empty()) find_classes(titles, rows, name, columns);
  return columns;
}

namespace {

// Returns the first line that is no comment.
std::string_view first_line(std::string_view content) {
  while (true) {
    content.remove_prefix(std::min(content.find_first_not_of("\r\n"), content.size()));
    const std::string_view line = content.substr(0, content.find_first_of("\r\n"));
    if (!line.starts_with('#') || line.find_first_of(",;\t|") != std::string_view::npos) return line;
    content.remove_prefix(line.size());
  }
}

std::vector<std::string> divided(std::string_view line, char separator) {
  std::vector<std::string> titles = titles_of(split(line, separator));
  for (std::string& title : titles) std::erase(title, '"');
  return titles;
}

// True if a separator divides a line into usual titles, or into an image and something else.
bool makes_columns(std::string_view line, char separator) {
  const std::vector<std::string> titles = divided(line, separator);
  if (titles.size() < 2) return false;
  return divides_titles(line, separator) || has_picture_extension(without_number(titles[0]));
}

}  // namespace

bool divides_titles(std::string_view line, char separator) {
  const std::vector<std::string> titles = divided(line, separator);
  return titles.size() > 1 && path_column(titles) != kNoColumn &&
         (titled_label(titles) != kNoColumn || !caption_columns(titles).empty());
}

char separator_of(const std::string& path, std::string_view content) {
  const char usual = lower(path).ends_with(".tsv") ? '\t' : ',';
  const std::string_view first = first_line(content);
  const std::array all = {usual, ';', '\t', ',', '|'};
  for (const char separator : all)
    if (makes_columns(first, separator)) return separator;
  for (const char separator : all)
    if (first.find(separator) != std::string_view::npos) return separator;
  return usual;
}

bool has_columns(std::string_view content) {
  const std::string_view first = first_line(content);
  const auto divides = [&](char separator) { return makes_columns(first, separator); };
  return std::ranges::any_of(std::string_view(",;\t|"), divides);
}

bool has_words_alone(std::string_view content) {
  const std::string_view first = trim(first_line(content));
  return first.find_first_of(",;\t|") == std::string_view::npos && first.find(' ') != std::string_view::npos;
}

std::string_view without_number(std::string_view path) {
  const size_t mark = path.rfind('#');
  if (mark == std::string_view::npos || !parse_int(path.substr(mark + 1))) return path;
  return has_picture_extension(path.substr(0, mark)) ? path.substr(0, mark) : path;
}

namespace {

const nlohmann::json* member(const nlohmann::json& entry, std::initializer_list<Titles> lists) {
  for (const Titles& words : lists)
    for (const std::string_view word : words)
      if (const auto found = entry.find(std::string(word)); found != entry.end()) return &*found;
  return nullptr;
}

}  // namespace

const nlohmann::json* path_member(const nlohmann::json& entry) { return member(entry, {kPath, kRarerPath}); }

const nlohmann::json* label_member(const nlohmann::json& entry) {
  // "labels" has a list of them.
  constexpr std::array<std::string_view, 3> kOne = {"label", "class", "target"};
  return member(entry, {kOne, kRarerLabel});
}

std::string image_folder(const std::string& table, const std::string& first) {
  const std::filesystem::path file(table), own = file.parent_path();
  const std::string stem = file.stem().string();
  for (const std::string& name :
       {std::string(), stem, stem + "_images", std::string("images"), "images/" + stem, std::string("train"),
        std::string("train_images"), std::string("ILSVRC/Data/CLS-LOC/val"), std::string("../images"),
        std::string("img_align_celeba"), std::string("../Img/img_align_celeba")}) {
    const std::string folder = name.empty() ? own.string() : (own / name).string();
    std::error_code error;
    const std::filesystem::path image = std::filesystem::path(folder) / with_suffix(folder, first);
    if (std::filesystem::is_regular_file(image, error)) return folder;
  }
  return own.string();
}

bool is_absolute_path(std::string_view path) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return path.starts_with('/') || (path.size() > 2 && is_letter(path[0]) && path.substr(1, 2) == ":/");
}

namespace {

// Returns a path with the characters that a URL writes as %20 and the like.
std::string without_percents(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    unsigned code = 0;
    const char* end = path.data() + std::min(i + 3, path.size());
    const bool escape = path[i] == '%' && std::from_chars(path.data() + i + 1, end, code, 16).ptr == end &&
                        end - path.data() == std::ptrdiff_t(i) + 3;
    out += escape && code != 0 ? static_cast<char>(code) : path[i];
    if (escape && code != 0) i += 2;
  }
  return out;
}

}  // namespace

std::string with_suffix(const std::string& root, const std::string& path) {
  const std::filesystem::path whole = std::filesystem::path(root) / path;
  std::error_code error;
  const bool elsewhere =
      (is_absolute_path(path) || path.starts_with("../")) && !std::filesystem::exists(whole, error);
  if (const size_t mark = path.find("?d="); elsewhere && mark != std::string::npos)  // Label Studio's
    return with_suffix(root, "/" + path.substr(mark + 3));
  if (elsewhere)
    for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      const std::string end = path.substr(slash + 1);
      if (is_absolute_path(end) || end.starts_with("../") || end.empty()) continue;
      const std::string found = with_suffix(root, end);
      if (std::filesystem::is_regular_file(std::filesystem::path(root) / found, error)) return found;
    }
  if (path.find('%') != std::string::npos && !std::filesystem::exists(whole, error))
    if (const std::string decoded = without_percents(path); decoded != path)
      if (const std::string found = with_suffix(root, decoded);
          std::filesystem::exists(std::filesystem::path(root) / found, error))
        return found;
  if (has_picture_extension(path) || std::filesystem::exists(whole, error)) return path;
  for (const char* suffix :
       {".jpg", ".png", ".jpeg", ".JPG", ".PNG", ".JPEG", ".webp", ".tif", ".tiff", ".bmp", ".gif"})
    if (std::filesystem::is_regular_file(whole.string() + suffix, error)) return path + suffix;
  return path;
}

}  // namespace tessera::data
