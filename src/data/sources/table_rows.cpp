// Tables of paths and labels: CSV, TSV, JSON and plain lists, one or several labels per image.
//
// CSV, TSV: two columns, or a header that names them: `path` (or file, filename, image, image_id) and
//   label (or class, category, target)  a number or a name; "cat|dog" or the title `labels` makes it multi-label
//   several other columns  0 or 1 each: multi-label, the titles are the classes
//   caption (or comment)   a text about the image; lines with the same path are its captions
//   split                  optional: train, or val, validation, valid, test
// JSON: a list of {"path": …, "label": … or "labels": […], "caption": … or "captions": […], "split": …}
// TXT: a line "path label" per image, as in VTAB-1k's lists (train800.txt), or a table with a separator.
#include "data/sources/table_rows.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/base/captions.h"
#include "data/base/list_lines.h"
#include "data/base/source_files.h"
#include "data/base/source_labels.h"
#include "data/base/table_columns.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/path.h"

namespace tessera::data {
namespace {

constexpr uint64_t kMostTableBytes = uint64_t{512} << 20;

// Returns a cell of the column of splits. Those by number become names.
std::string split_cell(const std::string& cell, const TableColumns& columns) {
  const std::string_view word = without_fraction(trim(cell));
  if (!columns.numbered_split) return std::string(word);
  return word == "0" ? "train" : word == "1" ? "val" : "test";
}

// `flagged` is the split of images with the mark 1, if the column holds marks.
std::optional<Split> parse_split(const std::string& word, std::optional<Split> flagged = {}) {
  if (!flagged) return split_of_name(trim(word));
  const auto mark = read_mark(word);
  if (!mark) return std::nullopt;
  return *mark ? *flagged : *flagged == Split::train ? Split::validation : Split::train;
}

// Returns the titles of those columns of a row that are marked. If one holds no mark, reports it and returns nothing.
std::optional<std::vector<std::string>> marked_classes(const CsvRow& row, const TableColumns& columns,
                                                       ImageTable& table, const std::string& where) {
  std::vector<std::string> marked;
  for (size_t i = 0; i < columns.classes.size(); ++i) {
    const std::string& cell = row.fields[columns.classes[i]];
    const auto mark = read_mark(cell, columns.signs);
    if (!mark) {
      table.problems.add(where, ": column '", table.classes[i], "' holds '", trim(cell), "', must be 0 or 1");
      return std::nullopt;
    }
    if (*mark) marked.push_back(table.classes[i]);
  }
  return marked;
}

// Returns a line of the table, or nothing if it is broken, which is added to the problems.
std::optional<TableRow> read_row(const CsvRow& row, const TableColumns& columns, const std::string& path,
                                 ImageTable& table) {
  TableRow entry;
  entry.where = text(path, " line ", row.line);
  if (row.fields.size() != columns.count) {
    table.problems.add(entry.where, " has ", row.fields.size(), " columns, must have ", columns.count);
    return std::nullopt;
  }
  const std::string_view place = trim(row.fields[columns.path]);
  entry.path = columns.header ? place : without_number(place);
  if (table.captioned) {
    for (const size_t column : columns.captions)
      for (std::string& caption : captions_of_lines(row.fields[column], entry.where))
        entry.captions.push_back(std::move(caption));
    if (entry.captions.empty()) table.problems.add(entry.where, " has an empty caption");
  }
  if (table.has_split) {
    const std::string word = split_cell(row.fields[columns.split], columns);
    entry.split = parse_split(word, columns.flagged), entry.test = is_test_name(word);
    if (!entry.split) {
      table.problems.add(entry.where, ": split is '", word, "', must be ",
                         columns.flagged ? "True or False" : "train, val or test");
      return std::nullopt;
    }
  }
  if (!columns.classes.empty()) {
    auto marked = marked_classes(row, columns, table, entry.where);
    if (!marked) return std::nullopt;
    entry.labels = std::move(*marked);
  } else if (table.labelled) {
    const std::string_view cell = class_of_boxes(trim(row.fields[columns.label]));
    refuse_objects(cell, entry.where);
    entry.labels = label_words(cell, table.separator);
    if (columns.name != kNoColumn) entry.name = trim(row.fields[columns.name]);
    if (cell.find('|') != std::string::npos || is_bracketed(cell)) table.multi = true;
  }
  return entry;
}

// Writes labels as whole numbers if they are such in another form: 2,0 as spreadsheets with a decimal comma have it, and
// NumPy's 2.000000e+00.
void write_plain_numbers(ImageTable& table) {
  const auto number = [](std::string label) {
    if (label.ends_with(",0") || label.ends_with(",00")) label[label.rfind(',')] = '.';
    const bool short_form = label.find('.') == std::string::npos && !parse_int(label);
    return short_form ? std::nullopt : class_number(label);
  };
  for (const TableRow& row : table.rows)
    if (!std::ranges::all_of(row.labels, [&](const auto& label) { return number(label).has_value(); }))
      return;
  for (TableRow& row : table.rows)
    for (std::string& label : row.labels)
      if (label.find_first_of(",eE") != std::string::npos) label = std::to_string(*number(label));
}

// Makes the first line blank if it is Excel's "sep=;".
void drop_separator_line(std::string& content) {
  const size_t end = std::min(content.find('\n'), content.size());
  const std::string_view first = trim(std::string_view(content).substr(0, end));
  if (first.size() == 5 && lower(first.substr(0, 4)) == "sep=") content.replace(0, end, "");
}

// Joins the ends of rows whose last column, a caption without quotes, contains separators.
void join_captions(std::vector<CsvRow>& rows, size_t count, char separator) {
  for (CsvRow& row : rows) {
    if (row.fields.size() <= count || count == 0) continue;
    for (size_t i = count; i < row.fields.size(); ++i) row.fields[count - 1] += separator + row.fields[i];
    row.fields.resize(count);
  }
}

ImageTable read_csv(const std::string& path) {
  std::string content = read_list_text(path, kMostTableBytes);
  drop_separator_line(content);
  std::vector<CsvRow> rows = counted_rows(content);
  if (rows.empty()) rows = parse_csv(content, separator_of(path, content), path);
  if (rows.empty()) fail(path, " is empty");
  const TableColumns columns = find_columns(rows, path);
  ImageTable table;
  table.warnings = columns.remarks;
  table.multi = columns.labels_title || !columns.classes.empty();
  table.has_split = columns.split != kNoColumn;
  table.labelled = columns.label != kNoColumn || !columns.classes.empty();
  table.captioned = !columns.captions.empty(), table.titled = columns.header;
  if (columns.name != kNoColumn) table.name_title = trim(rows[0].fields[columns.name]);
  if (columns.label != kNoColumn) table.separator = label_separator(rows, columns);
  if (table.separator == ' ') {
    table.multi = true;
    table.warnings.push_back(text(path, ": blanks separate the labels of an image"));
  }
  for (const size_t column : columns.classes) table.classes.emplace_back(trim(rows[0].fields[column]));
  if (!columns.unmarked.empty())
    table.warnings.push_back(
        text(path, ": columns without 0 and 1 are no classes and left out: ", some_of(columns.unmarked)));
  if (columns.header && columns.captions == std::vector<size_t>{columns.count - 1})
    join_captions(rows, columns.count, separator_of(path, content));
  for (size_t i = columns.header ? 1 : 0; i < rows.size(); ++i)
    if (auto row = read_row(rows[i], columns, path, table)) table.rows.push_back(std::move(*row));
  if (columns.classes.empty()) write_plain_numbers(table);
  return table;
}

// --- JSON ---

// Returns the items of a list, or the values of an object such as {"0": …}.
std::vector<nlohmann::json> items_of(const nlohmann::json& column) { return {column.begin(), column.end()}; }

// Returns an entry for each place of columns {"path": […], "label": […]}, or {"path": {"0": …}} as pandas writes them.
// One label an image may be in `labels`.
nlohmann::json entries_of_columns(const nlohmann::json& columns, const std::string& path) {
  nlohmann::json entries = nlohmann::json::array();
  for (const auto& [title, column] : columns.items()) {
    const std::vector<nlohmann::json> items = items_of(column);
    if (entries.empty()) entries = std::vector<nlohmann::json>(items.size(), nlohmann::json::object());
    if (items.size() != entries.size())
      fail(path, ": '", printable(title, 40), "' has ", items.size(), " values, another column ",
           entries.size());
    for (size_t i = 0; i < items.size(); ++i)
      entries[i][title == "labels" && !items[i].is_array() ? "label" : title] = items[i];
  }
  return entries;
}

// Returns a member of an object; null if there is none.
nlohmann::json member_of(const nlohmann::json& object, const char* key) {
  return object.is_object() ? object.value(key, nlohmann::json()) : nlohmann::json();
}

// Returns an entry for each image of {"images", "annotations", "categories"} without boxes, as iNaturalist has them.
nlohmann::json entries_of_annotations(const nlohmann::json& content) {
  std::map<std::string, nlohmann::json> names, labels;
  for (const nlohmann::json& category : member_of(content, "categories"))
    names[member_of(category, "id").dump()] = member_of(category, "name");
  for (const nlohmann::json& one : content["annotations"])
    labels[member_of(one, "image_id").dump()].push_back(member_of(one, "category_id"));
  nlohmann::json entries = nlohmann::json::array();
  for (const nlohmann::json& image : content["images"]) {
    nlohmann::json entry = {{"path", member_of(image, "file_name")}};
    const nlohmann::json& classes = labels[member_of(image, "id").dump()];
    if (classes.size() > 1) entry["labels"] = classes;
    if (classes.size() == 1) entry["label"] = classes[0], entry["class_name"] = names[classes[0].dump()];
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Returns an entry for each row of {"columns": […], "data": [[…]]}, as pandas writes it.
nlohmann::json entries_of_rows(const nlohmann::json& columns, const nlohmann::json& rows) {
  nlohmann::json entries = nlohmann::json::array();
  for (const nlohmann::json& row : rows) {
    nlohmann::json entry = nlohmann::json::object();
    for (size_t i = 0; row.is_array() && i < std::min(row.size(), columns.size()); ++i)
      if (columns[i].is_string()) entry[columns[i].get<std::string>()] = row[i];
    entries.push_back(std::move(entry));
  }
  return entries;
}

// True if a value is a list of images of the class `name`: by their suffix, or in its folder.
bool are_images_of(const std::string& name, const nlohmann::json& images) {
  return images.is_array() && std::ranges::all_of(images, [&](const nlohmann::json& image) {
           if (!image.is_string()) return false;
           const auto& file = image.get_ref<const std::string&>();
           return has_picture_extension(file) || file.starts_with(name + "/");
         });
}

// True if the values of a map, or those in its lists, are captions.
bool holds_captions(const nlohmann::json& map) {
  std::vector<std::string> texts;
  for (const nlohmann::json& value : map)
    for (const nlohmann::json& one : value.is_array() ? value : nlohmann::json::array({value})) {
      if (!one.is_string()) return false;
      texts.push_back(one.get<std::string>());
    }
  return are_captions(texts);
}

// Returns the entries of {"a.jpg": "cat"}, {"a.jpg": "a cat on a mat"} or {"cat": ["a.jpg"]}; none for other forms.
nlohmann::json entries_of_map(const nlohmann::json& map) {
  nlohmann::json entries = nlohmann::json::array();
  const bool captions = holds_captions(map);
  for (const auto& [key, value] : map.items())
    if (has_picture_extension(key) && value.is_object())
      entries.push_back(value), entries.back()["path"] = key;
    else if (has_picture_extension(key))
      entries.push_back({{"path", key},
                         {captions           ? "captions"
                          : value.is_array() ? "labels"
                                             : "label",
                          value}});
    else if (are_images_of(key, value))
      for (const nlohmann::json& image : value) entries.push_back({{"path", image}, {"label", key}});
    else
      return nlohmann::json::array();
  return entries;
}

nlohmann::json entries_of(nlohmann::json content, const std::string& path, int depth = 0);

// Returns the entries of {"train": …, "val": …}; none if the names are no splits.
nlohmann::json entries_of_splits(const nlohmann::json& splits, const std::string& path, int depth) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [name, content] : splits.items()) {
    if (!split_of_name(name) || !content.is_structured()) return nlohmann::json::array();
    for (nlohmann::json& entry : entries_of(content, path, depth + 1)) {
      if (entry.is_object()) entry.emplace("split", name);
      all.push_back(std::move(entry));
    }
  }
  return all;
}

bool is_triple(const nlohmann::json& entry) {
  return entry.is_array() && entry.size() == 3 && entry[1].is_number() && entry[2].is_string();
}

// Makes pairs ["a.jpg", "cat"] and triples ["a.jpg", 0, "cat"] objects. Others remain, and are reported. If the last words
// of all triples are names of splits, they are splits.
void name_members(nlohmann::json& entries) {
  const bool splits = std::ranges::all_of(entries, [](const nlohmann::json& entry) {
    return is_triple(entry) && split_of_name(entry[2].get_ref<const std::string&>());
  });
  for (nlohmann::json& entry : entries) {
    const bool pair = entry.is_array() && entry.size() == 2;
    if ((!pair && !is_triple(entry)) || !entry[0].is_string()) continue;
    nlohmann::json named = {{"path", entry[0]}, {"label", entry[1]}};
    if (!pair) named[splits ? "split" : "class_name"] = entry[2];
    entry = std::move(named);
  }
}

// Returns one object for each image of a table in any of the forms of other programs.
nlohmann::json entries_of(nlohmann::json content, const std::string& path, int depth) {
  if (content.is_array()) {
    name_members(content);
    return content;
  }
  nlohmann::json entries = nlohmann::json::array();
  if (!content.is_object() || depth > 1) return entries;
  const auto has = [&](const char* key) { return content.contains(key) && content[key].is_array(); };
  if (has("images") && has("annotations")) return entries_of_annotations(content);
  const nlohmann::json* paths = path_member(content);
  if (paths && paths->is_structured() && content.size() > 1) return entries_of_columns(content, path);
  if (has("columns") && has("data")) return entries_of_rows(content["columns"], content["data"]);
  if (entries = entries_of_splits(content, path, depth); !entries.empty()) return entries;
  if (entries = entries_of_map(content); !entries.empty()) return entries;
  const auto lists =
      std::count_if(content.begin(), content.end(), [](const auto& one) { return one.is_structured(); });
  for (const nlohmann::json& one : content)
    if (lists == 1 && one.is_structured()) return entries_of(one, path, depth + 1);
  return entries;
}

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

void read_json_split(const nlohmann::json& split, TableRow& row, ImageTable& table) {
  table.has_split = true;
  if (split.is_string()) row.split = parse_split(split.get<std::string>());
  row.test = split.is_string() && is_test_name(trim(split.get_ref<const std::string&>()));
  if (!row.split) fail(row.where, ": 'split' must be \"train\", \"val\" or \"test\"");
}

TableRow read_json_row(const nlohmann::json& object, const std::string& where, ImageTable& table) {
  TableRow row;
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
  if (split != object.end()) read_json_split(*split, row, table);
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

ImageTable read_json(const std::string& path) {
  nlohmann::json content = json_entries(path);
  const std::string kind = content.type_name();
  const nlohmann::json list = entries_of(std::move(content), path);
  if (list.empty() && kind != "array")
    fail(path, " is ", kind, R"(, must be a list of {"path": …, "label": …})");
  ImageTable table;
  table.labelled = list.empty() || std::any_of(list.begin(), list.end(), [](const nlohmann::json& entry) {
                     return !entry.is_object() || label_member(entry) || entry.contains("labels");
                   });
  for (size_t i = 0; i < list.size(); ++i) try {
      table.rows.push_back(read_json_row(list[i], text(path, " entry ", i), table));
    } catch (const Error& error) {
      table.problems.add(error.what());
    }
  for (const TableRow& row : table.rows)
    if (table.has_split && !row.split) table.problems.add(row.where, " has no 'split', unlike others");
  return table;
}

// True for a file of lines "path label" without columns, whatever its name.
bool is_words(const std::string& path, const std::string& content) {
  return is_list(path) ? !has_columns(content) && counted_rows(content).empty() : has_words_alone(content);
}

// Without labels, takes those of the folders next above the images, if there are several: "apple_pie/1.jpg".
void label_by_folders(ImageTable& table, const std::string& path) {
  std::set<std::string> folders;
  for (TableRow& row : table.rows) {
    const std::string file = portable_path(row.path);
    const size_t end = file.rfind('/');
    if (end == std::string::npos || end == 0) return;
    const size_t begin = file.rfind('/', end - 1);
    row.labels = {file.substr(begin + 1, end - begin - 1)};
    folders.insert(row.labels[0]);
  }
  const bool splits =
      std::ranges::all_of(folders, [](const auto& name) { return split_of_name(name).has_value(); });
  table.labelled = folders.size() > 1 && !splits;
  if (table.labelled)
    table.warnings.push_back(text(path, " has no labels: the folders of its images are the classes"));
}

ImageTable read_list(const std::string& path) {
  ListLines list = read_list_lines(read_list_text(path, kMostTableBytes), path);
  ImageTable table;
  table.labelled = list.labelled, table.has_split = list.has_split;
  table.problems = std::move(list.problems);
  for (ListLine& line : list.lines) {
    TableRow row;
    row.where = text(path, " line ", line.number);
    row.path = std::move(line.path), row.name = std::move(line.name);
    row.split = line.split, row.test = line.test;
    if (table.labelled) row.labels.push_back(std::move(line.label));
    table.rows.push_back(std::move(row));
  }
  if (!table.labelled) label_by_folders(table, path);
  return table;
}

// Takes the labels of a table without titles as captions, if they look like such.
void take_captions(ImageTable& table, const std::string& path) {
  constexpr size_t kFewest = 4;  // rows
  std::vector<std::string> texts;
  for (const TableRow& row : table.rows)
    if (row.labels.size() == 1 && row.name.empty()) texts.push_back(row.labels[0]);
  if (texts.size() != table.rows.size() || texts.size() < kFewest || !are_captions(texts)) return;
  for (TableRow& row : table.rows)
    row.captions = captions_of_lines(row.labels[0], row.where), row.labels.clear();
  table.labelled = false, table.captioned = table.guessed = true;
  table.warnings.push_back(text(path, ": the texts are captions, since most of them differ"));
}

// Merges captioned lines of one path into one sample.
void gather_captions(ImageTable& table) {
  std::map<std::string, size_t> places;
  std::vector<TableRow> rows;
  for (TableRow& row : table.rows) {
    const auto [found, is_new] = places.try_emplace(row.path, rows.size());
    if (is_new) {
      rows.push_back(std::move(row));
      continue;
    }
    TableRow& first = rows[found->second];
    if (row.labels != first.labels || row.split != first.split)
      table.problems.add(row.where, " has another label or split than ", first.where,
                         ", which names the same image");
    first.captions.insert(first.captions.end(), row.captions.begin(), row.captions.end());
  }
  table.rows = std::move(rows);
}

}  // namespace

bool is_list(const std::string& path) {
  return lower(path).ends_with(".txt") || lower(path).ends_with(".token");  // Flickr30k's
}

ImageTable read_table(const std::string& path, bool may_be_captions) {
  const std::string name = lower(path);
  const bool json = name.ends_with(".json") || name.ends_with(".jsonl");
  const bool words = !json && is_words(path, read_list_text(path, kMostTableBytes));
  ImageTable table = words ? read_list(path) : json ? read_json(path) : read_csv(path);
  if (may_be_captions && !json && !table.titled && table.labelled) take_captions(table, path);
  if (table.captioned) gather_captions(table);
  for (const TableRow& row : table.rows) table.names.add(row.labels, row.name);
  if (!table.name_title.empty() && !table.names.one_to_one())
    table.warnings.push_back(text(path, ": the column '", printable(table.name_title, 40),
                                  "' is not read, another one has the labels"));
  return table;
}

}  // namespace tessera::data
