#include "data/base/class_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_kinds.h"
#include "data/base/source_labels.h"
#include "io/files/file.h"
#include "io/files/gzip.h"
#include "io/files/json.h"
#include "io/files/yaml.h"
#include "text/unicode.h"

// imagenet_classes.txt.gz: one line per synset in the order of their numbers, "01440764 7 tench, Tinca
// tinca". The second word (hexadecimal) has one bit for each of kLists that contains the synset.
extern const unsigned char tessera_imagenet_classes[];
extern const size_t tessera_imagenet_classes_size;

namespace tessera::data {
namespace {

constexpr std::array<int64_t, 4> kLists = {1000, 21841, 21843, 11221};

const std::string& imagenet_table() {
  static const std::string table = [] {
    const std::span packed(tessera_imagenet_classes, tessera_imagenet_classes_size);
    return std::string(as_text(inflate_gzip(std::as_bytes(packed), "ImageNet's class names")));
  }();
  return table;
}

// Adds a distinguishing mark to each name that occurs more than once.
template <class Mark>
void tell_apart(std::vector<std::string>& names, const Mark& mark) {
  std::map<std::string_view, int> count;
  for (const std::string& name : names) ++count[name];
  std::vector<size_t> shared;
  for (size_t i = 0; i < names.size(); ++i)
    if (count[names[i]] > 1) shared.push_back(i);
  for (const size_t i : shared) names[i] += " (" + mark(i) + ")";
}

ImageNetClasses read_list(size_t list) {
  ImageNetClasses out;
  const std::string_view digits = "0123456789abcdef";
  for (const std::string& line : split(imagenet_table(), '\n')) {
    if (line.empty() || (digits.find(line.at(9)) >> list & 1) == 0) continue;
    out.synsets.push_back("n" + line.substr(0, 8));
    out.names.push_back(line.substr(11));
  }
  tell_apart(out.names, [&](size_t i) { return out.synsets[i]; });
  return out;
}

// Converts text with a byte order mark of UTF-16, which spreadsheets call "Unicode text".
std::string from_utf16(const std::string& content, const std::string& path) {
  const size_t low = content[0] == '\xFF' ? 0 : 1;
  const auto unit = [&](size_t i) {
    return uint32_t{static_cast<uint8_t>(content[i + low])} |
           uint32_t{static_cast<uint8_t>(content[i + 1 - low])} << 8;
  };
  std::string out;
  bool valid = content.size() % 2 == 0;
  for (size_t i = 2; valid && i < content.size(); i += 2) {
    uint32_t point = unit(i);
    if (point >= 0xD800 && point < 0xE000) {
      valid = point < 0xDC00 && i + 2 < content.size() && unit(i + 2) >= 0xDC00 && unit(i + 2) < 0xE000;
      if (valid) point = 0x10000 + (point - 0xD800) * 0x400 + (unit(i + 2) - 0xDC00);
      i += 2;
    }
    if (valid) tokens::append_utf8(static_cast<char32_t>(point), out);
  }
  if (!valid) fail(path, " begins as UTF-16 text but is not valid as such, must be UTF-8 or UTF-16");
  return out;
}

}  // namespace

std::string read_list_text(const std::string& path, uint64_t max_bytes) {
  std::string content = read_text(path, max_bytes);
  if (content.starts_with("\xFF\xFE") || content.starts_with("\xFE\xFF")) content = from_utf16(content, path);
  if (!is_utf8(content)) fail(path, " is not UTF-8 text: save it as UTF-8");
  content = without_mark(std::move(content));
  if (content.find('\n') == std::string::npos) std::ranges::replace(content, '\r', '\n');
  return content;
}

std::string without_mark(std::string content) {
  if (content.starts_with("\xEF\xBB\xBF")) content.erase(0, 3);
  return content;
}

namespace {

// True for a .json file, and for JSON or a Python dictionary or list in a file of another name.
bool is_json_list(const std::string& path, const std::string& content) {
  const std::string_view start = trim(std::string_view(content).substr(0, 64));
  return lower(path).ends_with(".json") || start.starts_with('{') || start.starts_with("[\"") ||
         start.starts_with("['");
}

// Writes a Python dictionary or list as JSON: {0: 'tench', 1: "cook's pet"}.
std::string json_of_python(const std::string& content) {
  std::string out;
  for (size_t i = 0; i < content.size(); ++i) {
    const char quote = content[i];
    if (std::isdigit(static_cast<unsigned char>(quote))) {
      const size_t end = std::min(content.find_first_not_of("0123456789", i), content.size());
      const size_t next = std::min(content.find_first_not_of(" \t", end), content.size());
      const bool key = next < content.size() && content[next] == ':';
      out += (key ? "\"" : "") + content.substr(i, end - i) + (key ? "\"" : "");
      i = end - 1;
    } else if (quote != '\'' && quote != '"') {
      out += quote;
    } else {
      out += '"';
      for (++i; i < content.size() && content[i] != quote; ++i) {
        if (content[i] == '\\' && i + 1 < content.size() && content[i + 1] == '\'') ++i;
        if (content[i] == '"') out += '\\';
        out += content[i];
        if (content[i] == '\\' && i + 1 < content.size()) out += content[++i];
      }
      out += '"';
    }
  }
  return out;
}

// Returns the length of the text before a name in its line: its number and a comma, colon or tab, or its synset and a
// blank. 0 if it has neither.
size_t prefix_of(std::string_view line, size_t number) {
  const size_t end = line.find_first_of(",:\t");
  if (end != std::string_view::npos && parse_int(line.substr(0, end)) == static_cast<int64_t>(number))
    return end + 1;
  const bool synset = line.size() > 10 && line[0] == 'n' &&
                      line.substr(1, 8).find_first_not_of("0123456789") == std::string_view::npos;
  return synset && (line[9] == ' ' || line[9] == '\t') ? 10 : 0;
}

// Returns a name without its number before a blank ("1 tench") or after a separator ("tench 0"); "" without one.
std::string_view without_count(std::string_view line, size_t number, bool at_end) {
  const size_t gap = at_end ? line.find_last_of(" ,:=\t") : line.find(' ');
  if (gap == std::string_view::npos) return "";
  const std::string_view count = at_end ? line.substr(gap + 1) : line.substr(0, gap);
  if (parse_int(count) != static_cast<int64_t>(number)) return "";
  if (!at_end) return trim(line.substr(gap + 1));
  const size_t last = line.find_last_not_of(" ,:=\t", gap);
  return last == std::string_view::npos ? "" : trim(line.substr(0, last + 1));
}

// Drops the numbers from 0 or 1 of a list, or the synsets before ImageNet's names, if all lines have them. Numbers that a
// blank separates may be part of the names: they are dropped from three lines on, if the names still differ.
void drop_prefixes(std::vector<std::string>& names) {
  for (const size_t first : {size_t{0}, size_t{1}}) {
    std::array<std::vector<std::string>, 3> forms;
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string_view name = names[i];
      if (const size_t length = prefix_of(name, i + first); length > 0)
        forms[0].emplace_back(trim(name.substr(length)));
      for (const bool at_end : {false, true})
        if (const std::string_view rest = without_count(name, i + first, at_end); !rest.empty())
          forms[at_end ? 2 : 1].emplace_back(rest);
    }
    for (std::vector<std::string>& form : forms) {
      const bool sure = &form == &forms[0];
      const std::set<std::string> distinct(form.begin(), form.end());
      if (form.size() == names.size() && (sure || (form.size() > 2 && distinct.size() == form.size())))
        return names.swap(form);
    }
  }
}

// Drops the quotes of a list if all names have them, with the commas after them ("'tench',"), or all names with a comma,
// as in a CSV file.
void drop_quotes(std::vector<std::string>& names) {
  const auto inside = [](std::string_view name) -> std::string_view {
    if (name.ends_with(',')) name = trim(name.substr(0, name.size() - 1));
    const bool quoted = name.size() > 2 && (name[0] == '"' || name[0] == '\'') && name.back() == name[0];
    return quoted ? trim(name.substr(1, name.size() - 2)) : "";
  };
  const auto has_comma = [](const std::string& name) { return name.find(',') != std::string::npos; };
  const auto in_quotes = [&](const std::string& name) { return !inside(name).empty(); };
  const bool all = std::ranges::all_of(names, in_quotes);
  const bool as_csv = std::ranges::all_of(
      names, [&](const std::string& name) { return !has_comma(name) || in_quotes(name); });
  for (std::string& name : names)
    if (all || (as_csv && has_comma(name))) name = std::string(inside(name));
}

// Names of classes, and the number of the first; 0 if the file does not number them.
struct ClassList {
  std::vector<std::string> names = {};
  int64_t first = 0;
};

// Returns names by their numbers from 0 or 1. A number without a name is an unused class, as in detectors of COCO.
ClassList in_order(const std::map<int64_t, std::string>& names, const std::string& path) {
  if (names.empty()) return {};
  const int64_t first = names.begin()->first, last = names.rbegin()->first;
  if (first < 0 || first > 1)
    fail(path, " numbers its classes from ", first, " ('", printable(names.begin()->second, 40),
         "'), must count from 0 or 1");
  if (last - first >= 2 * std::ssize(names))
    fail(path, " has ", counted(std::ssize(names), "name"), " for the classes ", first, " to ", last,
         ", must name at least half of the numbers");
  ClassList sorted{.first = first};
  for (int64_t number = first; number <= last; ++number) {
    const auto found = names.find(number);
    sorted.names.push_back(found == names.end() ? text("unused ", number) : found->second);
  }
  return sorted;
}

// Returns the names of a table with titles, in the order of its column of numbers; none for other files.
ClassList names_in_table(const std::string& path, const std::string& content) {
  const std::string file = lower(path);
  if (!file.ends_with(".csv") && !file.ends_with(".tsv")) return {};
  const std::vector<CsvRow> rows = parse_csv(content, file.ends_with(".tsv") ? '\t' : ',', path);
  const auto column = [&](std::initializer_list<std::string_view> titles) {
    for (const std::string_view title : titles)
      for (size_t i = 0; !rows.empty() && i < rows[0].fields.size(); ++i)
        if (lower(trim(rows[0].fields[i])) == title) return i;
    return SIZE_MAX;
  };
  const size_t name = column({"name", "class_name", "classname", "label_name", "class", "label", "category"}),
               number = column({"id", "class_id", "label_id", "index", "number", "label"});
  if (name == SIZE_MAX) return {};
  const bool numbered = number != SIZE_MAX && number != name;
  std::map<int64_t, std::string> names;
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::vector<std::string>& fields = rows[i].fields;
    if (fields.size() != rows[0].fields.size()) return {};
    const auto at = numbered ? parse_int(trim(fields[number])) : std::optional(static_cast<int64_t>(i));
    if (!at || !names.emplace(*at, trim(fields[name])).second)
      fail(path, " line ", rows[i].line, ": '", printable(fields[number], 40),
           "' is no number of a class, or repeats one");
  }
  ClassList list = in_order(names, path);
  if (!numbered) list.first = 0;
  return list;
}

// Returns a value without its quotes, and without the comment of a YAML line after them.
std::string unquoted(std::string_view value) {
  value = trim(value);
  if (!value.empty() && (value[0] == '"' || value[0] == '\''))
    return std::string(value.substr(1, value.find(value[0], 1) - 1));
  return std::string(trim(value.substr(0, value.find(" #"))));
}

// Returns the names of TensorFlow's label map, "item { id: 1 name: 'cat' }", by their ids; none for other files.
ClassList names_in_label_map(const std::string& path, const std::string& content) {
  const std::string_view start = trim(content);
  if (!lower(path).ends_with(".pbtxt") && !(start.starts_with("item") && start.find('{') < 8)) return {};
  std::map<int64_t, std::string> names;
  for (std::string item : split(content, '}')) {
    for (char& c : item)
      if (c == '\n' || c == '\r' || c == '\t' || c == '{') c = ' ';
    const auto value = [&](std::string_view key) {
      const size_t at = item.find(key);
      return at == std::string::npos ? std::string() : unquoted(item.substr(at + key.size()));
    };
    if (trim(item).empty()) continue;
    const std::string shown = value(" display_name:"), name = shown.empty() ? value(" name:") : shown;
    const std::string number = value(" id:");
    const auto id = parse_int(number.substr(0, number.find(' ')));
    if (!id || name.empty() || !names.emplace(*id, name).second)
      fail(path, ": '", printable(trim(item).substr(0, 60)),
           "' must be item { id: 1 name: 'cat' }, with ids that differ");
  }
  return in_order(names, path);
}

// Returns `names` of a YAML file; none for other files.
ClassList names_in_yaml(const std::string& path, const std::string& content) {
  if (!lower(path).ends_with(".yaml") && !lower(path).ends_with(".yml")) return {};
  const NumberedClasses classes = classes_of_yaml(YamlFile(content, path));
  std::map<int64_t, std::string> names;
  for (size_t i = 0; i < classes.names.size(); ++i) names.emplace(classes.numbers[i], classes.names[i]);
  return in_order(names, path);
}

// Drops the colours of CVAT's labelmap.txt, "cat:128,0,0::", if all lines have them.
void drop_colours(std::vector<std::string>& names) {
  const auto is_coloured = [](const std::string& name) {
    const std::vector<std::string> parts = split(name, ':');
    return parts.size() == 4 && std::ranges::count(parts[1], ',') == 2;
  };
  if (!std::ranges::all_of(names, is_coloured)) return;
  for (std::string& name : names) name = name.substr(0, name.find(':'));
}

ClassList names_in_json(const nlohmann::json& tree, const std::string& path) {
  std::map<int64_t, std::string> names;
  const auto refuse = [&] {
    fail(path, " must be a list of class names, or an object with a name for each class number from 0 or 1");
  };
  const auto put = [&](std::optional<int64_t> number, const nlohmann::json& value) {
    const nlohmann::json& name = value.is_array() && !value.empty()            ? value.back()
                                 : value.is_object() && value.contains("name") ? value["name"]
                                                                               : value;
    if (!number || !name.is_string()) refuse();
    const std::string word(trim(name.get_ref<const std::string&>()));
    if (word.empty() || !names.emplace(*number, word).second) refuse();
  };
  if (!tree.is_array() && !tree.is_object()) refuse();
  for (size_t i = 0; tree.is_array() && i < tree.size(); ++i)
    put(tree[i].is_object() && tree[i].contains("id") ? whole_number(tree[i]["id"]) : static_cast<int64_t>(i),
        tree[i]);
  if (tree.is_object())
    for (const auto& [key, value] : tree.items())
      value.is_number() ? put(whole_number(value), nlohmann::json(key)) : put(parse_int(key), value);
  return in_order(names, path);
}

}  // namespace

NumberedClasses classes_of_yaml(const YamlFile& file) {
  if (!file.has("names")) fail(file.path(), " has no 'names', the list of classes");
  const int64_t line = file.line("names");
  std::map<int64_t, std::string> names;
  std::set<std::string> seen;
  for (const YamlItem& item : file.items("names")) {
    const int64_t number = item.number.value_or(std::ssize(names));
    if (number < 0 || number >= kMostClasses)
      file.wrong(item.line, "the class ", number, " of 'names' must be from 0 to ", kMostClasses - 1);
    if (!names.emplace(number, item.value).second)
      file.wrong(item.line, "class ", number, " has a second name");
    if (!seen.insert(item.value).second)
      file.wrong(item.line, "'names' repeats the class '", printable(item.value), "'");
  }
  if (names.empty()) file.wrong(line, "'names' has no class");
  if (const YamlText count = file.scalar("nc"); count.line > 0) {
    const auto expected = parse_int(count.value);
    if (expected != std::ssize(names) && expected != names.rbegin()->first + 1)
      file.wrong(count.line, "'nc' is ", printable(count.value, 40), ", but 'names' has ",
                 counted(std::ssize(names), "class", "classes"));
  }
  NumberedClasses classes;
  for (auto& [number, name] : names)
    classes.numbers.push_back(number), classes.names.push_back(std::move(name));
  return classes;
}

namespace {

ClassList read_class_list(const std::string& path) {
  ClassList list;
  std::vector<std::string>& names = list.names;
  const std::string content = read_list_text(path);
  if (is_json_list(path, content)) {
    constexpr JsonLimits kLimits = {.max_depth = 16, .max_keys = size_t{1} << 20};
    const bool json = lower(path).ends_with(".json");
    const nlohmann::json tree = parse_json(json ? content : json_of_python(content), path, kLimits);
    list = names_in_json(tree.is_object() && tree.contains("id2label") ? tree["id2label"] : tree, path);
  } else {
    for (const auto& read : {names_in_table, names_in_label_map, names_in_yaml})
      if (names.empty()) list = read(path, content);
  }
  if (names.empty()) {
    for (const std::string& line : split(content, '\n'))
      if (!line.starts_with("# ")) names.emplace_back(trim(line));
  }
  while (!names.empty() && names.back().empty()) names.pop_back();
  drop_colours(names);
  drop_prefixes(names);
  drop_quotes(names);
  if (names.empty()) fail(path, " holds no class names");
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i].empty()) fail(path, " line ", i + 1, " is blank, must be a class name");
  const ImageNetClasses* known = imagenet_classes(std::ssize(names));
  tell_apart(names, [&](size_t i) { return known ? known->synsets[i] : std::to_string(i); });
  std::set<std::string> seen;
  for (size_t i = 0; i < names.size(); ++i)
    if (!seen.insert(names[i]).second) fail(path, " line ", i + 1, " repeats the class '", names[i], "'");
  return list;
}

}  // namespace

std::vector<std::string> read_class_names(const std::string& path) { return read_class_list(path).names; }

int64_t first_class_number(const std::string& path) { return read_class_list(path).first; }

ClassNames read_label_names(const std::string& path) {
  ClassList list = read_class_list(path);
  return ClassNames(std::move(list.names), list.first);
}

std::vector<std::string> read_ade_names(const std::string& path) {
  std::vector<std::string> names;
  for (const std::string& line : split(read_list_text(path), '\n')) {
    const std::vector<std::string> columns = split(line, '\t');
    if (columns.size() < 2 || !parse_int(trim(columns[0]))) continue;
    names.emplace_back(trim(split(columns.back(), ',').front()));
  }
  return names;
}

const ImageNetClasses* imagenet_classes(int64_t count) {
  const auto* list = std::find(kLists.begin(), kLists.end(), count);
  if (list == kLists.end()) return nullptr;
  static const std::array<ImageNetClasses, kLists.size()> lists = {read_list(0), read_list(1), read_list(2),
                                                                   read_list(3)};
  return &lists[static_cast<size_t>(list - kLists.begin())];
}

namespace {

// Returns ImageNet's words by synset, and by themselves if there are several.
const std::map<std::string, std::string>& imagenet_words() {
  static const std::map<std::string, std::string> words_of = [] {
    std::map<std::string, std::string> all;
    for (const std::string& line : split(imagenet_table(), '\n')) {
      if (line.empty()) continue;
      const std::string words = line.substr(11);
      all.emplace("n" + line.substr(0, 8), words);
      if (words.find(',') != std::string::npos) all.emplace(words, words);
    }
    return all;
  }();
  return words_of;
}

}  // namespace

std::vector<std::string> spoken_names(const std::vector<std::string>& classes) {
  const std::map<std::string, std::string>& words_of = imagenet_words();
  std::vector<std::string> spoken, words;
  for (const std::string& name : classes) {
    const auto found = words_of.find(name);
    words.push_back(found == words_of.end() ? name : found->second);
    spoken.push_back(found == words_of.end() ? name : found->second.substr(0, found->second.find(',')));
    if (found == words_of.end()) std::ranges::replace(spoken.back(), '_', ' ');
  }
  const auto lengthen_shared = [&](const auto& longer) {
    std::map<std::string, int> count;
    for (const std::string& name : spoken) ++count[name];
    for (size_t i = 0; i < spoken.size(); ++i)
      if (count[spoken[i]] > 1) spoken[i] = longer(i);
  };
  lengthen_shared([&](size_t i) { return words[i]; });
  lengthen_shared(
      [&](size_t i) { return words[i] == classes[i] ? classes[i] : text(words[i], " (", classes[i], ")"); });
  return spoken;
}

bool same_classes(const std::vector<std::string>& one, const std::vector<std::string>& other) {
  if (one == other) return true;
  const ImageNetClasses* known = one.size() == other.size() ? imagenet_classes(std::ssize(one)) : nullptr;
  return known && ((one == known->names && other == known->synsets) ||
                   (one == known->synsets && other == known->names));
}

}  // namespace tessera::data
