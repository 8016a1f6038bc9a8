// Tables of paths and labels: CSV, TSV, JSON and plain lists, one or several labels per image.
//
// CSV, TSV: two columns, or a header that names them: `path` (or file, filename, image, image_id) and
//   label (or class, category, target)  a number or a name; "cat|dog" or the title `labels` makes it multi-label
//   several other columns  0 or 1 each: multi-label, the titles are the classes
//   caption (or comment)   a text about the image; lines with the same path are its captions
//   split                  optional: train, or val, validation, valid, test
//   The separator is a comma, a semicolon, a tab or a bar; Excel's first line `sep=;` is skipped. Windows'
//   `images\\a.jpg` is `images/a.jpg`, and 2.0 is the class 2. Several labels may also be a list in brackets, or divided
//   by semicolons or commas in a column titled `labels`.
// JSON: a list of {"path": …, "label": … or "labels": […], "caption": … or "captions": […], "split": …}
// JSONL: one such entry per line.
// TXT: a line "path label" per image, as in VTAB-1k's lists (train800.txt), or a table with a separator. A .csv
//   that has blanks alone is such a list too.
// Images have no labels if the table has none. Labels are class numbers if all are numbers and no class names
// are given, otherwise names. The classes are the sorted names of the training table.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "data/base/captions.h"
#include "data/base/list_lines.h"
#include "data/base/source_files.h"
#include "data/base/source_kinds.h"
#include "data/base/source_labels.h"
#include "data/base/table_columns.h"
#include "data/base/table_labels.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/path.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostTableBytes = uint64_t{512} << 20;

struct Row {
  std::string where;  // "labels.csv line 7"
  std::string path;
  std::vector<std::string> labels;
  bool numbers = false;  // JSON: labels are numbers, whatever the class names
  std::optional<Split> split;
  bool test = false;  // its split is that of test data
  std::string name;   // class name next to a number
  std::vector<std::string> captions = {};
};

struct Table {
  std::vector<Row> rows;
  bool multi = false;
  bool has_split = false;
  bool labelled = true;
  bool captioned = false;
  char separator = '|';              // between labels in a cell
  std::vector<std::string> classes;  // names of the columns, if these are the classes
  NumberNames names;                 // of classes by number
  std::string name_title;            // title over them
  ProblemList problems;
  std::vector<std::string> warnings;
};

// `flagged` is the split of images with the mark 1, if the column holds marks.
std::optional<Split> parse_split(const std::string& word, std::optional<Split> flagged = {}) {
  if (!flagged) return split_of_name(trim(word));
  const auto mark = read_mark(word);
  if (!mark) return std::nullopt;
  return *mark ? *flagged : *flagged == Split::train ? Split::validation : Split::train;
}

// --- CSV and TSV ---

// Returns the titles of those columns of a row that are marked. If one holds no mark, reports it and returns nothing.
std::optional<std::vector<std::string>> marked_classes(const CsvRow& row, const TableColumns& columns,
                                                       Table& table, const std::string& where) {
  std::vector<std::string> marked;
  for (size_t i = 0; i < columns.classes.size(); ++i) {
    const std::string& cell = row.fields[columns.classes[i]];
    const auto mark = read_mark(cell);
    if (!mark) {
      table.problems.add(where, ": column '", table.classes[i], "' holds '", trim(cell), "', must be 0 or 1");
      return std::nullopt;
    }
    if (*mark) marked.push_back(table.classes[i]);
  }
  return marked;
}

// Returns a line of the table, or nothing if it is broken, which is added to the problems.
std::optional<Row> read_row(const CsvRow& row, const TableColumns& columns, const std::string& path,
                            Table& table) {
  Row entry;
  entry.where = text(path, " line ", row.line);
  if (row.fields.size() != columns.count) {
    table.problems.add(entry.where, " has ", row.fields.size(), " columns, must have ", columns.count);
    return std::nullopt;
  }
  const std::string_view place = trim(row.fields[columns.path]);
  entry.path = columns.header ? place : without_number(place);
  if (table.captioned) {
    entry.captions = captions_of_lines(row.fields[columns.caption], entry.where);
    if (entry.captions.empty()) table.problems.add(entry.where, " has an empty caption");
  }
  if (table.has_split) entry.split = parse_split(row.fields[columns.split], columns.flagged);
  entry.test = table.has_split && is_test_name(trim(row.fields[columns.split]));
  if (table.has_split && !entry.split) {
    table.problems.add(entry.where, ": split is '", row.fields[columns.split], "', must be ",
                       columns.flagged ? "True or False" : "train, val or test");
    return std::nullopt;
  }
  if (!columns.classes.empty()) {
    auto marked = marked_classes(row, columns, table, entry.where);
    if (!marked) return std::nullopt;
    entry.labels = std::move(*marked);
  } else if (table.labelled) {
    const std::string_view cell = class_of_boxes(trim(row.fields[columns.label]));
    entry.labels = label_words(cell, table.separator);
    if (columns.name != kNoColumn) entry.name = trim(row.fields[columns.name]);
    if (cell.find('|') != std::string::npos || is_bracketed(cell)) table.multi = true;
  }
  return entry;
}

// Makes the first line blank if it is Excel's "sep=;".
void drop_separator_line(std::string& content) {
  const size_t end = std::min(content.find('\n'), content.size());
  const std::string_view first = trim(std::string_view(content).substr(0, end));
  if (first.size() == 5 && lower(first.substr(0, 4)) == "sep=") content.replace(0, end, "");
}

Table read_csv(const std::string& path) {
  std::string content = read_list_text(path, kMostTableBytes);
  drop_separator_line(content);
  const auto rows = parse_csv(content, separator_of(path, content), path);
  if (rows.empty()) fail(path, " is empty");
  const TableColumns columns = find_columns(rows, path);
  Table table;
  table.multi = columns.labels_title || !columns.classes.empty();
  table.has_split = columns.split != kNoColumn;
  table.labelled = columns.label != kNoColumn || !columns.classes.empty();
  table.captioned = columns.caption != kNoColumn;
  if (columns.name != kNoColumn) table.name_title = trim(rows[0].fields[columns.name]);
  if (columns.label != kNoColumn) table.separator = label_separator(rows, columns);
  for (const size_t column : columns.classes) table.classes.emplace_back(trim(rows[0].fields[column]));
  if (!columns.unmarked.empty())
    table.warnings.push_back(
        text(path, ": columns without 0 and 1 are no classes and left out: ", some_of(columns.unmarked)));
  for (size_t i = columns.header ? 1 : 0; i < rows.size(); ++i)
    if (auto row = read_row(rows[i], columns, path, table)) table.rows.push_back(std::move(*row));
  return table;
}

// --- JSON ---

// Returns one JSON label as text. 2.0 is the number 2.
std::string label_text(const nlohmann::json& value, const std::string& where, bool& is_number) {
  const auto whole = value.is_number_float() ? whole_number(value) : std::nullopt;
  is_number = value.is_number_integer() || whole.has_value();
  if (whole) return std::to_string(*whole);
  if (is_number) return value.dump();
  if (!value.is_string())
    fail(where, ": a label is ", value.type_name(), ", must be a whole number or a class name");
  std::string word(trim(value.get_ref<const std::string&>()));
  if (word.empty()) fail(where, " has an empty label");
  return word;
}

Row read_json_row(const nlohmann::json& object, const std::string& where, Table& table) {
  Row row;
  row.where = where;
  if (!object.is_object())
    fail(where, " is ", object.type_name(), R"(, must be an object such as {"path": …, "label": …})");
  const auto labels = object.find("labels"), split = object.find("split");
  const nlohmann::json *path = path_member(object), *label = label_member(object);
  if (!path || !path->is_string()) fail(where, " has no text 'path'");
  row.path = path->get<std::string>();
  row.captions = captions_of_json(object, where);
  // A data set of Hugging Face has captions as "text".
  if (const auto words = object.find("text");
      row.captions.empty() && !table.labelled && words != object.end())
    if (words->is_string()) row.captions = captions_of_lines(words->get_ref<const std::string&>(), where);
  table.captioned = table.captioned || !row.captions.empty();
  if (table.labelled && (label == nullptr) == (labels == object.end()))
    fail(where, " must have either 'label' or 'labels'");
  if (!table.labelled) {
    // Images without labels.
  } else if (label) {
    row.labels.push_back(label_text(*label, where, row.numbers));
    row.name = name_member(object);
  } else {
    table.multi = true;
    if (!labels->is_array()) fail(where, ": 'labels' is ", labels->type_name(), ", must be an array");
    for (size_t i = 0; i < labels->size(); ++i) {
      bool is_number = false;
      row.labels.push_back(label_text((*labels)[i], where, is_number));
      if (i > 0 && is_number != row.numbers) fail(where, ": 'labels' mixes numbers and names");
      row.numbers = is_number;
    }
  }
  if (split != object.end()) {
    table.has_split = true;
    if (split->is_string()) row.split = parse_split(split->get<std::string>());
    row.test = split->is_string() && is_test_name(trim(split->get_ref<const std::string&>()));
    if (!row.split) fail(where, ": 'split' must be \"train\", \"val\" or \"test\"");
  }
  return row;
}

// Returns the entries of a .json file, or of a .jsonl file with one a line.
nlohmann::json json_entries(const std::string& path) {
  const std::string content = without_mark(read_text(path, kMostTableBytes));
  const JsonLimits limits{.max_bytes = kMostTableBytes, .max_depth = 4};
  if (!lower(path).ends_with(".jsonl")) return parse_json(content, path, limits);
  nlohmann::json list = nlohmann::json::array();
  int64_t number = 0;
  for (const std::string& line : split(content, '\n'))
    if (++number; !trim(line).empty()) list.push_back(parse_json(line, text(path, " line ", number), limits));
  return list;
}

Table read_json(const std::string& path) {
  const nlohmann::json list = json_entries(path);
  if (!list.is_array())
    fail(path, " is ", list.type_name(), R"(, must be a list of {"path": …, "label": …})");
  Table table;
  table.labelled = list.empty() || std::any_of(list.begin(), list.end(), [](const nlohmann::json& entry) {
                     return !entry.is_object() || label_member(entry) || entry.contains("labels");
                   });
  for (size_t i = 0; i < list.size(); ++i) try {
      table.rows.push_back(read_json_row(list[i], text(path, " entry ", i), table));
    } catch (const Error& error) {
      table.problems.add(error.what());
    }
  for (const Row& row : table.rows)
    if (table.has_split && !row.split) table.problems.add(row.where, " has no 'split', unlike others");
  return table;
}

// --- Lists ---

bool is_list(const std::string& path) { return lower(path).ends_with(".txt"); }

// True for a file of lines "path label" without columns, whatever its name.
bool is_words(const std::string& path, const std::string& content) {
  return is_list(path) ? !has_columns(content) : has_words_alone(content);
}

Table read_list(const std::string& path) {
  ListLines list = read_list_lines(read_list_text(path, kMostTableBytes), path);
  Table table;
  table.labelled = list.labelled;
  table.problems = std::move(list.problems);
  for (ListLine& line : list.lines) {
    Row row;
    row.where = text(path, " line ", line.number);
    row.path = std::move(line.path);
    if (table.labelled) row.labels.push_back(std::move(line.label));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Merges captioned lines of one path into one sample.
void gather_captions(Table& table) {
  std::map<std::string, size_t> places;
  std::vector<Row> rows;
  for (Row& row : table.rows) {
    const auto [found, is_new] = places.try_emplace(row.path, rows.size());
    if (is_new) {
      rows.push_back(std::move(row));
      continue;
    }
    Row& first = rows[found->second];
    if (row.labels != first.labels || row.split != first.split)
      table.problems.add(row.where, " has another label or split than ", first.where,
                         ", which names the same image");
    first.captions.insert(first.captions.end(), row.captions.begin(), row.captions.end());
  }
  table.rows = std::move(rows);
}

// Without a column of splits, takes those of the folders that the paths begin with, if there are both: train/, test/.
void split_by_folders(Table& table) {
  std::vector<std::optional<Split>> splits;
  for (const Row& row : table.rows) {
    const std::string path = portable_path(row.path);
    splits.push_back(split_of_name(path.substr(0, std::min(path.find('/'), path.size()))));
    if (!splits.back() || path.find('/') == std::string::npos) return;
  }
  if (std::ranges::count(splits, Split::train) == 0 || std::ranges::count(splits, Split::validation) == 0)
    return;
  table.has_split = true;
  for (size_t i = 0; i < splits.size(); ++i) {
    Row& row = table.rows[i];
    const std::string path = portable_path(row.path);
    row.split = splits[i], row.test = is_test_name(path.substr(0, path.find('/')));
  }
}

Table read_table(const std::string& path) {
  const std::string name = lower(path);
  const bool json = name.ends_with(".json") || name.ends_with(".jsonl");
  const bool words = !json && is_words(path, read_list_text(path, kMostTableBytes));
  Table table = words ? read_list(path) : json ? read_json(path) : read_csv(path);
  if (table.captioned) gather_captions(table);
  for (const Row& row : table.rows) table.names.add(row.labels, row.name);
  if (!table.name_title.empty() && !table.names.one_to_one())
    table.warnings.push_back(text(path, ": the column '", printable(table.name_title, 40),
                                  "' is not read, another one has the labels"));
  if (!table.has_split) split_by_folders(table);
  return table;
}

// --- Classes ---

bool all_numbers(const Table& table) {
  for (const Row& row : table.rows)
    for (const std::string& label : row.labels)
      if (!parse_int(without_fraction(label))) return false;
  return true;
}

// A number would be taken as an index into the sorted names, which no one counted.
void refuse_numbers(const Table& table) {
  for (const Row& row : table.rows)
    if (row.numbers)
      fail(row.where, " has the number ", row.labels[0],
           " as its label, others have names; must be numbers or names in all, or give class_names");
}

std::vector<int64_t> numbers_in(const Table& table) {
  std::set<int64_t> numbers;
  for (const Row& row : table.rows)
    for (const std::string& label : row.labels)
      numbers.insert(parse_int(without_fraction(label)).value_or(-1));
  return {numbers.begin(), numbers.end()};
}

// Returns the classes defined by a training table.
ClassNames classes_of(const Table& table, const SourceConfig& config) {
  if (!config.class_names.empty()) return ClassNames(read_class_names(config.class_names));
  if (!table.classes.empty()) return ClassNames(table.classes);
  if (!all_numbers(table)) {
    std::set<std::string> words;
    for (const Row& row : table.rows) words.insert(row.labels.begin(), row.labels.end());
    refuse_numbers(table);
    std::vector<std::string> names(words.begin(), words.end());
    order_classes(names, config);
    return ClassNames(std::move(names));
  }
  if (table.names.usable()) return ClassNames(table.names.classes());
  return ClassNames(classes_of_numbers(numbers_in(table)));
}

// Returns the classes of two numeric lists together, since neither of them needs to contain every class.
// Returns nothing if `other` is not a list or one of them has names.
std::optional<ClassNames> classes_of_both(const Table& table, const SourceConfig& config,
                                          const std::string& other) {
  if (!config.class_names.empty() || !is_list(other) || !is_table_path(other)) return std::nullopt;
  const Table theirs = read_table(other);
  if (!all_numbers(table) || !all_numbers(theirs)) return std::nullopt;
  std::vector<int64_t> numbers = numbers_in(table);
  for (const int64_t number : numbers_in(theirs)) numbers.push_back(number);
  return ClassNames(classes_of_numbers(std::move(numbers)));
}

// Returns the classes of one split's table: its own, or those of the training set, which also decides on `multi_label`.
ClassNames classes_of_split(const Table& table, const SourceConfig& config, Split split, bool& multi_label) {
  const std::string& path = path_of(config, split);
  if (!table.labelled) return ClassNames({""});
  const std::string& other = split == Split::train ? config.val_path : config.path;
  if (const auto both = is_list(path) ? classes_of_both(table, config, other) : std::nullopt) return *both;
  if (split == Split::train || !has_training_path(config)) return classes_of(table, config);
  const auto train = open_source_with_problems(config, Split::train);
  const ClassLabels& labels = require_labels(*train, path);
  multi_label = labels.multi_label();
  if (table.multi && !multi_label)
    fail(path, " has several labels an image, ", train->describe(), " has one");
  return ClassNames(labels.class_names());
}

// Returns the class of a label. 2.0 is the class 2, unless a class has the name "2.0".
int64_t class_of(const std::string& label, const Row& row, const ClassNames& classes, bool chosen) {
  if (const int64_t named = row.name.empty() ? -1 : classes.find(row.name); named >= 0) return named;
  if (!row.name.empty())
    fail(row.where, " has the label ", label, ", '", printable(row.name, 40), "', which is no class",
         classes.hint(row.name));
  const std::string_view word = classes.find(label) >= 0 ? std::string_view(label) : without_fraction(label);
  if (const auto number = chosen ? parse_int(word) : std::nullopt; number && *number >= 0) {
    const int64_t found = class_of_number(*number, classes.names(), chosen);
    if (found < 0)
      fail(row.where, " has label ", *number, ", must be one of the classes ", some_of(classes.names()));
    return found;
  }
  const auto kind = row.numbers ? LabelText::number_first : LabelText::name_first;
  const int64_t number = read_label(word, kind, classes, row.where);
  const auto count = static_cast<int64_t>(classes.names().size());
  if (number >= count) fail(row.where, " has label ", number, ", must be 0 to ", count - 1);
  return number;
}

// Drops the names next to the numbers if the numbers are those of other classes.
void keep_names(Table& table, const ClassNames& classes, const SourceConfig& config) {
  const bool any =
      std::ranges::any_of(table.rows, [&](const Row& row) { return classes.find(row.name) >= 0; });
  if (any && table.names.usable() && config.class_names.empty()) return;
  for (Row& row : table.rows) row.name.clear();
}

void add_row(const Row& row, const ClassNames& classes, bool chosen, bool captioned, FileSet& set) {
  if (row.path.empty()) fail(row.where, " has an empty path");
  refuse_remote_path(row.path);
  if (row.path.find('\0') != std::string::npos) fail(row.where, ": the path holds a zero byte");
  if (row.labels.empty() && !set.multi_label) fail(row.where, " has no label");
  std::vector<int64_t> numbers;
  for (const std::string& label : row.labels) numbers.push_back(class_of(label, row, classes, chosen));
  set.labels.push_back(set.multi_label ? -1 : numbers[0]);
  const std::string given = portable_path(row.path);
  set.paths.push_back(with_suffix(set.root, given));
  if (is_absolute_path(given) && !is_absolute_path(set.paths.back()) && set.warnings.empty())
    set.warnings.push_back(text(row.where, ": '", printable(given, 60), "' does not exist; '",
                                set.paths.back(), "' of ", set.root.empty() ? "." : set.root,
                                " is read instead, and others likewise"));
  if (set.multi_label) set.label_lists.push_back(several_labels(std::move(numbers)).classes);
  if (captioned) set.captions.push_back(row.captions);
}

class TableSource final : public FileSource {
 public:
  using FileSource::FileSource;
  const char* kind() const override { return "table"; }
};

}  // namespace

bool is_table_path(const std::string& path) {
  const std::string name = lower(path);
  std::error_code error;
  const auto has = [&](const char* suffix) { return name.ends_with(suffix); };
  return (has(".csv") || has(".tsv") || has(".json") || has(".jsonl") || is_list(name)) &&
         fs::is_regular_file(path, error);
}

std::unique_ptr<Source> open_table(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  const bool own_path = !config.val_path.empty();
  Table table = read_table(path);
  if (!table.labelled)
    for (Row& row : table.rows) row.labels = {"0"};
  FileSet set;
  set.multi_label = table.multi;
  set.shown = path;
  const std::string first = table.rows.empty() ? "" : portable_path(table.rows[0].path);
  set.root = config.image_root.empty() ? image_folder(path, first) : config.image_root;
  const ClassNames classes = classes_of_split(table, config, split, set.multi_label);
  keep_names(table, classes, config);
  const bool chosen = table.labelled && config.class_names.empty() && are_chosen_numbers(classes.names());
  if (chosen && split == Split::train) set.warnings.push_back(chosen_numbers_line(path, classes.names()));
  const bool has_val = std::ranges::any_of(
      table.rows, [](const Row& row) { return row.split == Split::validation && !row.test; });
  const auto is_left_out = [&](const Row& row) { return has_val && row.test; };
  if (const auto count = std::ranges::count_if(table.rows, is_left_out); count > 0)
    set.left_out = counted(count, "test image");
  // If a table has a separate path and no rows for this split, all of it is used.
  const auto marked = [&](const Row& row) { return row.split == split && !is_left_out(row); };
  const bool whole =
      !table.has_split || (own_path && std::none_of(table.rows.begin(), table.rows.end(), marked));
  for (const Row& row : table.rows) try {
      if (whole || marked(row)) add_row(row, classes, chosen, table.captioned, set);
    } catch (const Error& error) {
      table.problems.add(error.what());
    }
  set.classes = classes.names();
  if (!own_path && !table.has_split) set.keep(select_split(config, split, set.paths, set.labels));
  if (table.labelled && split == Split::train && (!config.class_names.empty() || !table.classes.empty()))
    find_empty_classes(path, set.classes, set.counts(), table.problems);
  set.problems = table.problems.lines();
  if (split == Split::train || own_path)
    for (std::string& line : table.warnings) set.warnings.push_back(std::move(line));
  auto source = std::make_unique<TableSource>(std::move(set));
  if (!table.labelled) return without_labels(std::move(source));
  return source;
}

}  // namespace tessera::data
