#include "data/masks/mask_classes.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "data/base/source_kinds.h"
#include "data/base/source_labels.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/files/json.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

std::optional<MaskColour> colour_of_words(const std::vector<std::string>& words) {
  if (words.size() < 3 || words.size() > 4) return std::nullopt;  // red, green, blue, and alpha
  MaskColour colour{};
  for (size_t i = 0; i < 3; ++i) {
    const auto value = parse_int(trim(words[i]));
    if (!value || *value < 0 || *value > 255) return std::nullopt;
    colour[i] = static_cast<uint8_t>(*value);
  }
  return colour;
}

// Reads "#80ff00", "128,255,0", "(128, 255, 0)", "[128 255 0]".
std::optional<MaskColour> colour_of_text(std::string_view given) {
  std::string word(trim(given));
  if (word.starts_with('#') && word.size() >= 7) {
    std::vector<std::string> parts;
    for (size_t i = 1; i < 7; i += 2) {
      const auto digit = [&](size_t at) {
        return std::string_view("0123456789abcdef").find(lower(word.substr(at, 1)));
      };
      if (digit(i) == std::string_view::npos || digit(i + 1) == std::string_view::npos) return std::nullopt;
      parts.push_back(std::to_string(16 * digit(i) + digit(i + 1)));
    }
    return colour_of_words(parts);
  }
  std::erase_if(word, [](char c) { return std::string_view("()[]").find(c) != std::string_view::npos; });
  std::ranges::replace(word, ',', ' ');
  std::vector<std::string> words;
  for (const std::string& part : split(word, ' '))
    if (!trim(part).empty()) words.push_back(part);
  return colour_of_words(words);
}

// One class while its file is read.
struct Entry {
  std::string name;
  std::optional<MaskColour> colour;
  std::optional<int64_t> number = {};
};

// Reads "cat:128,0,0:parts:actions" a line; nothing if a line has another form.
std::vector<Entry> entries_of_label_map(const std::string& content) {
  std::vector<Entry> entries;
  for (const std::string& line : split(content, '\n')) {
    if (trim(line).empty() || trim(line).starts_with('#')) continue;
    const std::vector<std::string> parts = split(line, ':');
    if (parts.size() < 2 || parts.size() > 4) return {};
    const auto colour = colour_of_text(parts[1]);
    if (!colour && !trim(parts[1]).empty()) return {};
    entries.push_back({std::string(trim(parts[0])), colour});
  }
  return entries;
}

// Reads "128 0 0 cat" a line; nothing if a line has another form.
std::vector<Entry> entries_of_lines(const std::string& content) {
  std::vector<Entry> entries;
  for (const std::string& line : split(content, '\n')) {
    std::string rest = line;
    std::ranges::replace(rest, '\t', ' ');
    std::string_view left = trim(rest);
    std::vector<std::string> words;
    while (words.size() < 3 && !left.empty()) {
      const size_t end = std::min(left.find(' '), left.size());
      words.emplace_back(left.substr(0, end));
      left = trim(left.substr(end));
    }
    if (words.empty()) continue;
    const auto colour = colour_of_words(words);
    if (!colour || left.empty()) return {};
    entries.push_back({std::string(left), colour});
  }
  return entries;
}

// Reads a table with a title for the names, and r, g and b, or one for the colour; nothing for other tables.
std::vector<Entry> entries_of_table(const std::string& content, const std::string& path) {
  const std::vector<CsvRow> rows =
      parse_csv(content, content.find('\t') < content.find('\n') ? '\t' : ',', path);
  const auto column = [&](std::initializer_list<std::string_view> titles) {
    for (const std::string_view title : titles)
      for (size_t i = 0; !rows.empty() && i < rows[0].fields.size(); ++i)
        if (lower(trim(rows[0].fields[i])) == title) return i;
    return SIZE_MAX;
  };
  const size_t name = column({"name", "class_name", "class", "label", "category", "classes"}),
               one = column({"color", "colour", "rgb", "hex", "color_rgb"});
  const std::array<size_t, 3> parts = {column({"r", "red"}), column({"g", "green"}), column({"b", "blue"})};
  const bool has_parts = std::ranges::none_of(parts, [](size_t at) { return at == SIZE_MAX; });
  if (name == SIZE_MAX || (one == SIZE_MAX && !has_parts)) return {};
  std::vector<Entry> entries;
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::vector<std::string>& fields = rows[i].fields;
    if (fields.size() != rows[0].fields.size())
      fail(path, " line ", rows[i].line, " has ", fields.size(), " columns, the titles have ",
           rows[0].fields.size());
    entries.push_back({std::string(trim(fields[name])),
                       has_parts ? colour_of_words({fields[parts[0]], fields[parts[1]], fields[parts[2]]})
                                 : colour_of_text(fields[one])});
    if (!entries.back().colour)
      fail(path, " line ", rows[i].line, ": the colour of '", printable(entries.back().name, 40),
           "' must be three numbers from 0 to 255");
  }
  return entries;
}

std::optional<MaskColour> colour_of_json(const nlohmann::json& value) {
  if (value.is_string()) return colour_of_text(value.get_ref<const std::string&>());
  std::vector<std::string> words;
  for (size_t i = 0; value.is_array() && i < value.size(); ++i) words.push_back(value[i].dump());
  return colour_of_words(words);
}

// Returns the first of the members of an object; null without one.
const nlohmann::json* member(const nlohmann::json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const auto found = object.find(key); found != object.end()) return &*found;
  return nullptr;
}

// Reads {"name": "cat", "color": [128, 0, 0]}, also with Supervisely's "title"; the key of a map may be the name or number.
Entry entry_of_json(const std::string& key, const nlohmann::json& value) {
  if (!value.is_object()) return {key, colour_of_json(value)};
  const nlohmann::json* name = member(value, {"name", "title", "class", "class_name", "label"});
  const nlohmann::json* colour = member(value, {"color", "colour", "rgb", "hex", "color_rgb"});
  const nlohmann::json* number = member(value, {"id", "index", "class_id", "value"});
  return {name && name->is_string() ? name->get<std::string>() : key,
          colour ? colour_of_json(*colour) : std::nullopt, number ? whole_number(*number) : parse_int(key)};
}

// Returns nothing if a class has no colour.
std::vector<Entry> entries_of_json(const nlohmann::json& tree) {
  if (tree.is_object())
    for (const char* key : {"classes", "labels", "categories", "objects"})
      if (tree.contains(key) && tree[key].is_structured()) return entries_of_json(tree[key]);
  std::vector<Entry> entries;
  if (tree.is_object())
    for (const auto& [key, value] : tree.items()) entries.push_back(entry_of_json(key, value));
  for (size_t i = 0; tree.is_array() && i < tree.size(); ++i)
    if (tree[i].is_object()) entries.push_back(entry_of_json("", tree[i]));
  if (std::ranges::any_of(entries, [](const Entry& one) { return one.name.empty() || !one.colour; }))
    return {};
  return entries;
}

// Sorts classes by their numbers, if these are 0, 1, ….
void sort_by_number(std::vector<Entry>& entries) {
  std::vector<Entry> sorted(entries.size());
  std::set<int64_t> numbers;
  for (const Entry& one : entries) {
    if (!one.number || *one.number < 0 || *one.number >= std::ssize(entries)) return;
    if (!numbers.insert(*one.number).second) return;
    sorted[static_cast<size_t>(*one.number)] = one;
  }
  entries = std::move(sorted);
}

std::vector<Entry> entries_of(const std::string& path) {
  const std::string content = read_list_text(path), file = lower(path);
  if (file.ends_with(".json")) {
    constexpr JsonLimits kLimits = {.max_depth = 16, .max_keys = size_t{1} << 16};
    std::vector<Entry> entries = entries_of_json(parse_json(content, path, kLimits));
    sort_by_number(entries);
    return entries;
  }
  if (file.ends_with(".csv") || file.ends_with(".tsv")) return entries_of_table(content, path);
  std::vector<Entry> entries = entries_of_label_map(content);
  return entries.empty() ? entries_of_lines(content) : entries;
}

std::string file_in(const std::vector<std::string>& folders, std::initializer_list<const char*> names) {
  for (const std::string& folder : folders)
    for (const char* name : names)
      if (std::string file = (fs::path(folder) / name).string(); file_exists(file)) return file;
  return "";
}

}  // namespace

MaskClasses read_mask_classes(const std::string& path) {
  MaskClasses classes{.file = path, .names = {}, .colours = {}};
  const std::vector<Entry> entries = entries_of(path);
  const bool coloured = std::ranges::all_of(entries, [](const Entry& one) { return one.colour.has_value(); });
  if (entries.empty() || !coloured) return {};
  std::set<std::string> seen;
  for (const Entry& one : entries) {
    if (one.name.empty() || !is_utf8(one.name)) fail(path, " has a class without a name");
    if (!seen.insert(one.name).second) fail(path, " repeats the class '", printable(one.name, 60), "'");
    classes.names.push_back(one.name), classes.colours.push_back(*one.colour);
  }
  return classes;
}

MaskClasses mask_colours_in(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders)
    for (const char* name : {"labelmap.txt", "class_dict.csv", "class_dict_seg.csv", "label_colors.txt",
                             "classes.json", "class_dict.json", "label_colors.json", "meta.json"})
      if (const std::string file = file_in({folder}, {name}); !file.empty())
        if (MaskClasses classes = read_mask_classes(file); !classes.names.empty()) return classes;
  return {};
}

std::string mask_names_in(const std::vector<std::string>& folders) {
  return file_in(folders, {"class_names.txt", "labelmap.txt", "labels.txt", "classes.json"});
}

std::vector<std::string> read_mask_names(const std::string& path) {
  std::vector<std::string> names = read_class_names(path);
  if (names.size() > 1 && names[0] == "__ignore__") names.erase(names.begin());
  return names;
}

ColourTable::ColourTable(const MaskClasses& classes) {
  for (size_t i = 0; i < classes.colours.size(); ++i) {
    const MaskColour& colour = classes.colours[i];
    const auto [other, is_new] = classes_.emplace(colour, static_cast<uint8_t>(i));
    if (!is_new)
      fail(classes.file, ": '", printable(classes.names[other->second], 40), "' and '",
           printable(classes.names[i], 40), "' have one colour, ", int{colour[0]}, ",", int{colour[1]}, ",",
           int{colour[2]});
    gray_ = gray_ && colour[0] == colour[1] && colour[1] == colour[2];
  }
}

void ColourTable::ignore(const MaskColour& colour) { classes_.emplace(colour, kIgnoredPixel); }

Image ColourTable::classes_of(const Image& colours, std::map<MaskColour, int64_t>& strange) const {
  Image out(colours.width, colours.height, 1);
  std::optional<MaskColour> last;  // neighbours are usually equal
  uint8_t of_last = kIgnoredPixel;
  bool known = true;
  for (size_t i = 0; i < out.pixels.size(); ++i) {
    const uint8_t* pixel = colours.pixels.data() + 3 * i;
    const MaskColour colour = {pixel[0], pixel[1], pixel[2]};
    if (colour != last) {
      const auto found = classes_.find(colour);
      known = found != classes_.end();
      of_last = known ? found->second : kIgnoredPixel, last = colour;
    }
    out.pixels[i] = of_last;
    if (!known) ++strange[colour];
  }
  return out;
}

std::string listed_colours(const std::map<MaskColour, int64_t>& pixels) {
  constexpr size_t kShown = 4;
  std::vector<std::pair<int64_t, MaskColour>> sorted;
  for (const auto& [colour, count] : pixels) sorted.emplace_back(-count, colour);
  std::ranges::sort(sorted);
  std::string out;
  for (size_t i = 0; i < std::min(kShown, sorted.size()); ++i) {
    const auto& [count, colour] = sorted[i];
    out += text(i > 0 ? ", " : "", int{colour[0]}, ",", int{colour[1]}, ",", int{colour[2]}, " (",
                counted(-count, "pixel"), ")");
  }
  return sorted.size() > kShown ? text(out, " and ", sorted.size() - kShown, " more") : out;
}

}  // namespace tessera::data
