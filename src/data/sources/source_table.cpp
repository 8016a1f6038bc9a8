// Tables of paths and labels (table_rows.h) as a source: the classes, the splits and the files of the images.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "data/base/source_files.h"
#include "data/base/source_kinds.h"
#include "data/base/source_labels.h"
#include "data/base/table_columns.h"
#include "data/sources/table_rows.h"
#include "io/files/path.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

bool all_numbers(const ImageTable& table) {
  for (const TableRow& row : table.rows)
    for (const std::string& label : row.labels)
      if (!parse_int(without_fraction(label))) return false;
  return true;
}

// A number would be taken as an index into the sorted names, which no one counted.
void refuse_numbers(const ImageTable& table) {
  for (const TableRow& row : table.rows)
    if (row.numbers)
      fail(row.where, " has the number ", row.labels[0],
           " as its label, others have names; must be numbers or names in all, or give class_names");
}

std::vector<int64_t> numbers_in(const ImageTable& table) {
  std::set<int64_t> numbers;
  for (const TableRow& row : table.rows)
    for (const std::string& label : row.labels)
      numbers.insert(parse_int(without_fraction(label)).value_or(-1));
  return {numbers.begin(), numbers.end()};
}

// Returns the classes defined by a training table.
ClassNames classes_of(const ImageTable& table, const SourceConfig& config) {
  if (!config.class_names.empty()) return read_label_names(config.class_names);
  if (!table.classes.empty()) return ClassNames(table.classes);
  if (!all_numbers(table)) {
    std::set<std::string> words;
    for (const TableRow& row : table.rows) words.insert(row.labels.begin(), row.labels.end());
    refuse_numbers(table);
    std::vector<std::string> names(words.begin(), words.end());
    order_classes(names, config);
    return ClassNames(std::move(names));
  }
  if (table.names.usable()) return ClassNames(table.names.classes());
  return ClassNames(classes_of_numbers(numbers_in(table)));
}

// Returns the classes of two numeric lists together, since neither of them needs to contain every class.
// Returns nothing if `other` is not a list, one of them has names, or the numbers have names.
std::optional<ClassNames> classes_of_both(const ImageTable& table, const SourceConfig& config,
                                          const std::string& other) {
  if (!config.class_names.empty() || table.names.usable() || !is_list(other) || !is_table_path(other))
    return std::nullopt;
  const ImageTable theirs = read_table(other);
  if (!all_numbers(table) || !all_numbers(theirs)) return std::nullopt;
  std::vector<int64_t> numbers = numbers_in(table);
  for (const int64_t number : numbers_in(theirs)) numbers.push_back(number);
  return ClassNames(classes_of_numbers(std::move(numbers)));
}

// Returns the classes of one split's table: its own, or those of the training set, which also decides on `multi_label`.
ClassNames classes_of_split(const ImageTable& table, const SourceConfig& config, Split split,
                            bool& multi_label) {
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
  return ClassNames(labels.class_names(),
                    config.class_names.empty() ? 0 : first_class_number(config.class_names));
}

// Returns the class of a label. 2.0 is the class 2, unless a class has the name "2.0".
int64_t class_of(const std::string& label, const TableRow& row, const ClassNames& classes, bool chosen) {
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
  if (number >= count)
    fail(row.where, " has label ", number + classes.first(), ", must be ", classes.first(), " to ",
         count - 1 + classes.first());
  return number;
}

// Drops the names next to the numbers if the numbers are those of other classes.
void keep_names(ImageTable& table, const ClassNames& classes, const SourceConfig& config) {
  const bool any =
      std::ranges::any_of(table.rows, [&](const TableRow& row) { return classes.find(row.name) >= 0; });
  if (any && table.names.usable() && config.class_names.empty()) return;
  for (TableRow& row : table.rows) row.name.clear();
}

// The images below a folder by the ends of their paths, for tables with paths that leave out folders.
class ImagesBelow {
 public:
  explicit ImagesBelow(const std::string& root) {
    for (const std::string& file : some_files_below(root, kMostFiles))
      if (has_picture_extension(file)) {
        const fs::path place = fs::path(file).lexically_relative(root);
        const std::string whole = place.generic_string();
        const size_t number = places_.size();
        places_.push_back(whole);
        ends_.emplace_back(reversed(whole), number);
        ends_.emplace_back(reversed(fs::path(place).replace_extension().generic_string()), number);
      }
    std::ranges::sort(ends_);
  }
  // Returns the only image with a path that ends in this one, with this suffix, else with any; of an absolute path, in its
  // longest end that any image has. Returns the path itself if there is none or more than one.
  std::string find(const std::string& path) const {
    const std::string found = find_end(path);
    if (found != path || !has_picture_extension(path)) return found;
    const std::string stem = fs::path(path).replace_extension().string(), other = find_end(stem);
    return other == stem ? path : other;
  }

 private:
  static constexpr size_t kMostFiles = size_t{1} << 22;

  std::string find_end(const std::string& path) const {
    std::string rest = path.substr(std::min(path.find_first_not_of('/'), path.size()));
    for (;;) {
      const std::string end = reversed(rest);
      const auto first = std::ranges::lower_bound(ends_, std::pair(end, size_t{0}));
      const auto fits = [&](auto place) { return place != ends_.end() && place->first.starts_with(end); };
      if (fits(first)) return fits(first + 1) ? path : places_[first->second];
      const size_t slash = rest.find('/');
      if (!is_absolute_path(path) || slash == std::string::npos) return path;
      rest.erase(0, slash + 1);
    }
  }

  // Returns a path from its end to its start, with a slash before the start.
  static std::string reversed(const std::string& path) {
    std::string out(path.rbegin(), path.rend());
    return out + "/";
  }

  std::vector<std::string> places_;
  std::vector<std::pair<std::string, size_t>> ends_;  // reversed paths, and their places
};

// Replaces the paths of images that do not exist by those of the images below the folder, if the first is one, with a
// warning.
void find_below(FileSet& set) {
  const auto missing = [&](const std::string& path) {
    std::error_code error;
    return !fs::exists(fs::path(set.root) / path, error);
  };
  const std::string root = set.root.empty() ? "." : set.root;
  if (set.paths.empty() || !missing(set.paths[0]) || !is_folder_path(root)) return;
  const ImagesBelow below(root);
  bool warned = false;
  for (std::string& path : set.paths) {
    if (!missing(path)) continue;
    const std::string found = below.find(path);
    if (found != path && !std::exchange(warned, true))
      set.warnings.push_back(text(set.shown, ": '", printable(path, 60), "' does not exist; '", found,
                                  "' of ", root, " is read instead, and others likewise"));
    path = found;
  }
}

void add_row(const TableRow& row, const ClassNames& classes, bool chosen, bool captioned, FileSet& set) {
  if (row.path.empty()) fail(row.where, " has an empty path");
  refuse_remote_path(row.path);
  if (row.path.find('\0') != std::string::npos) fail(row.where, ": the path holds a zero byte");
  if (row.labels.empty() && !set.multi_label) fail(row.where, " has no label");
  std::vector<int64_t> numbers;
  for (const std::string& label : row.labels) numbers.push_back(class_of(label, row, classes, chosen));
  set.labels.push_back(set.multi_label ? -1 : numbers[0]);
  const std::string given = portable_path(row.path);
  set.paths.push_back(with_suffix(set.root, given));
  const auto leaves = [](const std::string& one) { return is_absolute_path(one) || one.starts_with("../"); };
  if (leaves(given) && !leaves(set.paths.back()) && set.warnings.empty())
    set.warnings.push_back(text(row.where, ": '", printable(given, 60), "' does not exist; '",
                                set.paths.back(), "' of ", set.root.empty() ? "." : set.root,
                                " is read instead, and others likewise"));
  if (set.multi_label) set.label_lists.push_back(several_labels(std::move(numbers)).classes);
  if (captioned) set.captions.push_back(row.captions);
}

// Without a column of splits, takes those of the folders that the paths begin with, if there are both: train/, test/.
void split_by_folders(ImageTable& table) {
  std::vector<std::optional<Split>> splits;
  for (const TableRow& row : table.rows) {
    const std::string path = portable_path(row.path);
    splits.push_back(split_of_name(path.substr(0, std::min(path.find('/'), path.size()))));
    if (!splits.back() || path.find('/') == std::string::npos) return;
  }
  if (std::ranges::count(splits, Split::train) == 0 || std::ranges::count(splits, Split::validation) == 0)
    return;
  table.has_split = true;
  for (size_t i = 0; i < splits.size(); ++i) {
    TableRow& row = table.rows[i];
    const std::string path = portable_path(row.path);
    row.split = splits[i], row.test = is_test_name(path.substr(0, path.find('/')));
  }
}

// Takes the splits of CelebA's list_eval_partition (0 train, 1 val, 2 test) next to the table, or in Eval/ as it is
// published, if it names all images.
void split_by_partition(ImageTable& table, const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  for (const char* name :
       {"list_eval_partition.txt", "list_eval_partition.csv", "../Eval/list_eval_partition.txt"}) {
    const std::string file = (folder / name).string();
    if (!is_table_path(file) || fs::path(path).filename() == fs::path(file).filename()) continue;
    std::map<std::string, TableRow> parts;
    for (TableRow& row : read_table(file).rows) parts.emplace(row.path, std::move(row));
    const auto part_of = [&](const TableRow& row) {
      const auto found = parts.find(fs::path(portable_path(row.path)).filename().string());
      return found == parts.end() ? nullptr : &found->second;
    };
    if (!std::ranges::all_of(table.rows, part_of)) continue;
    table.has_split = true;
    for (TableRow& row : table.rows) {
      const TableRow& part = *part_of(row);
      const std::string number = part.labels.empty() ? "" : part.labels[0];
      row.split = part.split ? part.split : number == "0" ? Split::train : Split::validation;
      row.test = part.test || number == "2";
    }
    return;
  }
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

namespace {

// Adds the rows of a split. If a table has a separate path and no rows for this split, all of it is used.
void add_rows(ImageTable& table, Split split, bool own_path, const ClassNames& classes, bool chosen,
              FileSet& set) {
  const bool has_val = std::ranges::any_of(
      table.rows, [](const TableRow& row) { return row.split == Split::validation && !row.test; });
  const auto is_left_out = [&](const TableRow& row) { return has_val && row.test; };
  if (const auto count = std::ranges::count_if(table.rows, is_left_out); count > 0)
    set.left_out = counted(count, "test image");
  const auto marked = [&](const TableRow& row) { return row.split == split && !is_left_out(row); };
  const bool whole =
      !table.has_split || (own_path && std::none_of(table.rows.begin(), table.rows.end(), marked));
  for (const TableRow& row : table.rows) try {
      if (whole || marked(row)) add_row(row, classes, chosen, table.captioned, set);
    } catch (const Error& error) {
      table.problems.add(error.what());
    }
}

// Reads the table of a split. Its texts are labels, whatever they look like, if classes are given or the training set has
// labels.
ImageTable table_of_split(const SourceConfig& config, Split split, const std::string& path) {
  ImageTable table = read_table(path);
  if (!table.guessed) return table;
  const bool follows = split == Split::validation && has_training_path(config);
  const bool labels = !config.class_names.empty() ||
                      (follows && !(is_table_path(config.path) && read_table(config.path).captioned));
  return labels ? read_table(path, /*may_be_captions=*/false) : table;
}

}  // namespace

std::unique_ptr<Source> open_table(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  refuse_foreign_file(path);
  const bool own_path = !config.val_path.empty();
  ImageTable table = table_of_split(config, split, path);
  if (!table.has_split && (!own_path || config.val_path == config.path)) {
    split_by_folders(table);
    if (!table.has_split) split_by_partition(table, path);
  }
  if (!table.labelled)
    for (TableRow& row : table.rows) row.labels = {"0"};
  FileSet set;
  set.multi_label = table.multi;
  set.shown = path;
  const std::string first = table.rows.empty() ? "" : portable_path(table.rows[0].path);
  set.root = config.image_root.empty() ? image_folder(path, first) : config.image_root;
  const ClassNames classes = classes_of_split(table, config, split, set.multi_label);
  keep_names(table, classes, config);
  const bool chosen = table.labelled && config.class_names.empty() && are_chosen_numbers(classes.names());
  if (chosen && split == Split::train) set.warnings.push_back(chosen_numbers_line(path, classes.names()));
  add_rows(table, split, own_path, classes, chosen, set);
  find_below(set);
  set.classes = classes.names();
  if (config.captions == CaptionUse::none) set.captions.clear();
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
