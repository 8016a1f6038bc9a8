#include "data/detection/label_parsers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_labels.h"

namespace tessera::data {
namespace {

// One key at the left margin: its value, and the indented lines after it.
struct Entry {
  YamlText value;
  std::vector<YamlText> block;
};

// Calls `visit` with each position outside quotes until it returns true; returns that position, or npos.
template <class Visit>
size_t find_unquoted(std::string_view line, const Visit& visit) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool opens = i == 0 || std::string_view(" \t[{,:").find(line[i - 1]) != std::string_view::npos;
    if (quote != 0) {
      if (quote == '"' && line[i] == '\\')
        ++i;
      else if (line[i] == quote)
        quote = 0;
    } else if ((line[i] == '"' || line[i] == '\'') && opens) {
      quote = line[i];
    } else if (visit(i)) {
      return i;
    }
  }
  return std::string_view::npos;
}

std::string_view without_comment(std::string_view line) {
  return line.substr(0, find_unquoted(line, [&](size_t i) {
                       return line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t');
                     }));
}

class YamlReader {
 public:
  YamlReader(const std::string& content, std::string path)
      : path_(std::move(path)), lines_(split(content, '\n')) {
    for (size_t i = 0; i < lines_.size(); ++i) read_line(i);
  }

  // Returns the text of one line.
  YamlText scalar(const std::string& key) const {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return {};
    const Entry& entry = found->second;
    if (!entry.block.empty() || entry.value.value.starts_with("["))
      wrong(entry.value.line, "'", key, "' is a list, must be one text");
    return {plain(entry.value.value, entry.value.line), entry.value.line};
  }

  bool has(const std::string& key) const { return entries_.contains(key); }

  // Returns the text of one line, or those of a list.
  std::vector<YamlText> texts(const std::string& key) const {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return {};
    const auto& [value, block] = found->second;
    if (block.empty() && !value.value.starts_with("[")) {
      const YamlText one = scalar(key);
      return one.value.empty() ? std::vector<YamlText>() : std::vector{one};
    }
    std::vector<YamlText> out;
    for (std::string& word : in_order(block.empty() ? flow_items(value) : block, !block.empty()))
      out.push_back({std::move(word), value.line});
    return out;
  }

  std::vector<std::string> names() const {
    const auto found = entries_.find("names");
    if (found == entries_.end()) fail(path_, " has no 'names', the list of classes");
    const YamlText& value = found->second.value;
    const std::vector<YamlText> items = value.value.empty() ? found->second.block : flow_items(value);
    const bool numbered =
        !value.value.empty() ? value.value[0] == '{' : !items.empty() && !items[0].value.starts_with("-");
    std::vector<std::string> names = numbered ? by_number(items) : in_order(items, value.value.empty());
    if (names.empty()) wrong(value.line, "'names' has no class");
    if (std::ssize(names) > kMostClasses)
      wrong(value.line, "'names' has more than ", kMostClasses, " classes");
    std::set<std::string> seen;
    for (const std::string& name : names)
      if (!seen.insert(name).second) wrong(value.line, "'names' repeats the class '", printable(name), "'");
    if (const YamlText count = scalar("nc"); count.line > 0 && parse_int(count.value) != std::ssize(names))
      wrong(count.line, "'nc' is ", printable(count.value, 40), ", but 'names' has ",
            counted(std::ssize(names), "class", "classes"));
    return names;
  }

 private:
  template <class... Parts>
  [[noreturn]] void wrong(int64_t line, const Parts&... parts) const {
    fail(path_, " line ", line, ": ", parts...);
  }

  // Reads a line; `i` moves past all lines of a list in brackets.
  void read_line(size_t& i) {
    const std::string_view content = without_comment(lines_[i]);
    const std::string_view line = trim(content);
    const auto number = static_cast<int64_t>(i) + 1;
    if (line.empty() || line == "---" || line == "...") return;
    if (content[0] == ' ' || content[0] == '\t' || line[0] == '-') {
      if (last_ == nullptr) wrong(number, "a line of a list without its key");
      last_->block.push_back({std::string(line), number});
      return;
    }
    const size_t colon = colon_of(line);
    if (colon == std::string_view::npos) wrong(number, "'", printable(line, 60), "' is no 'key: value'");
    const std::string key = plain(std::string(trim(line.substr(0, colon))), number);
    Entry entry{.value = {std::string(trim(line.substr(colon + 1))), number}, .block = {}};
    if (entry.value.value.starts_with("[") || entry.value.value.starts_with("{"))
      while (!closed(entry.value.value)) {
        if (++i >= lines_.size()) wrong(number, "the list of '", printable(key, 40), "' is not closed");
        entry.value.value += ' ';
        entry.value.value += trim(without_comment(lines_[i]));
      }
    const auto [at, first] = entries_.try_emplace(key, std::move(entry));
    if (!first) wrong(number, "repeats the key '", printable(key, 40), "'");
    last_ = &at->second;
  }

  // Returns the position of the colon after a key.
  static size_t colon_of(std::string_view line) {
    return find_unquoted(line, [&](size_t i) {
      return line[i] == ':' && (i + 1 == line.size() || line[i + 1] == ' ' || line[i + 1] == '\t');
    });
  }
  static bool closed(std::string_view list) { return list.ends_with(list[0] == '[' ? ']' : '}'); }

  // Returns the value of a plain or quoted text.
  std::string plain(const std::string& raw, int64_t line) const {
    if (raw.empty()) return raw;
    const char first = raw[0];
    if (first != '"' && first != '\'') {
      if (std::string_view("&*!|>%@`[]{}").find(first) != std::string_view::npos)
        wrong(line, "'", printable(raw, 40), "' is no plain text");
      return raw;
    }
    std::string out;
    size_t i = 1;
    for (; i < raw.size(); ++i) {
      const bool pair =
          i + 1 < raw.size() && (first == '"' ? raw[i] == '\\' : raw[i] == '\'' && raw[i + 1] == '\'');
      if (pair && first == '"' && raw[i + 1] != '"' && raw[i + 1] != '\\')
        wrong(line, "'", printable(raw, 40), "' has another escape than \\\" and \\\\");
      if (pair)
        ++i;
      else if (raw[i] == first)
        break;
      out += raw[i];
    }
    if (i + 1 != raw.size()) wrong(line, "'", printable(raw, 40), "' has no end quote");
    return out;
  }

  // Splits the items of a list in brackets at its commas; one comma may end the list.
  std::vector<YamlText> flow_items(const YamlText& list) const {
    const char first = list.value[0];
    if (first != '[' && first != '{')
      wrong(list.line, "'names' is '", printable(list.value, 40), "', must be a list of classes");
    std::string_view rest = std::string_view(list.value).substr(1, list.value.size() - 2);
    std::vector<YamlText> items;
    while (!trim(rest).empty()) {
      const size_t comma = find_unquoted(rest, [&](size_t i) { return rest[i] == ','; });
      items.push_back({std::string(trim(rest.substr(0, comma))), list.line});
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    return items;
  }

  std::vector<std::string> in_order(const std::vector<YamlText>& items, bool dashes) const {
    std::vector<std::string> names;
    for (const YamlText& item : items) {
      if (dashes && !item.value.starts_with("- "))
        wrong(item.line, "'", printable(item.value, 40), "' is no '- NAME', as the lines before it");
      names.push_back(
          plain(std::string(trim(std::string_view(item.value).substr(dashes ? 2 : 0))), item.line));
      if (names.back().empty()) wrong(item.line, "item ", names.size() - 1, " of the list is empty");
    }
    return names;
  }

  // The numbers must be 0, 1, …, in any order.
  std::vector<std::string> by_number(const std::vector<YamlText>& items) const {
    std::vector<std::string> names(items.size());
    for (const YamlText& item : items) {
      const size_t colon = colon_of(item.value);
      const auto number = colon == std::string::npos
                              ? std::nullopt
                              : parse_int(plain(std::string(trim(item.value.substr(0, colon))), item.line));
      if (!number || *number < 0 || *number >= std::ssize(names))
        wrong(item.line, "'", printable(item.value, 40), "' is no 'NUMBER: NAME' with a number from 0 to ",
              std::ssize(names) - 1, ", the classes of 'names'");
      std::string& name = names[static_cast<size_t>(*number)];
      if (!name.empty()) wrong(item.line, "class ", *number, " has a second name");
      name = plain(std::string(trim(item.value.substr(colon + 1))), item.line);
      if (name.empty()) wrong(item.line, "the name of class ", *number, " is empty");
    }
    return names;
  }

  std::string path_;
  std::vector<std::string> lines_;
  std::map<std::string, Entry> entries_;
  Entry* last_ = nullptr;
};

}  // namespace

YoloYaml parse_yolo_yaml(const std::string& content, const std::string& where) {
  const YamlReader reader(content, where);
  return {reader.scalar("path"), reader.texts("train"), reader.texts("val"),
          reader.texts("test"),  reader.names(),        reader.has("kpt_shape")};
}

}  // namespace tessera::data
