#include "io/files/yaml.h"

#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tessera {
namespace {

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

// Returns the position of the colon after a key.
size_t colon_of(std::string_view line) {
  return find_unquoted(line, [&](size_t i) {
    return line[i] == ':' && (i + 1 == line.size() || line[i + 1] == ' ' || line[i + 1] == '\t');
  });
}

bool is_bracketed(std::string_view value) { return value.starts_with("[") || value.starts_with("{"); }
bool is_closed(std::string_view list) { return list.ends_with(list[0] == '[' ? ']' : '}'); }

}  // namespace

YamlFile::YamlFile(const std::string& content, std::string path) : path_(std::move(path)) {
  const std::vector<std::string> lines = split(content, '\n');
  for (size_t i = 0; i < lines.size(); ++i) read_line(lines, i);
}

YamlText YamlFile::scalar(const std::string& key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return {};
  const Entry& entry = found->second;
  if (!entry.block.empty() || entry.value.value.starts_with("["))
    wrong(entry.value.line, "'", key, "' is a list, must be one text");
  return {plain(entry.value.value, entry.value.line), entry.value.line};
}

std::vector<YamlText> YamlFile::texts(const std::string& key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return {};
  if (found->second.block.empty() && !found->second.value.value.starts_with("[")) {
    const YamlText one = scalar(key);
    return one.value.empty() ? std::vector<YamlText>() : std::vector{one};
  }
  std::vector<YamlText> out;
  for (YamlItem& item : items(key)) {
    if (item.number) wrong(item.line, "'", key, "' has numbers, must be texts");
    out.push_back({std::move(item.value), found->second.value.line});
  }
  return out;
}

std::vector<YamlItem> YamlFile::items(const std::string& key) const {
  const auto& [value, block] = entries_.at(key);
  if (!value.value.empty() && !is_bracketed(value.value))
    wrong(value.line, "'", key, "' is '", printable(value.value, 40), "', must be a list");
  const bool flow = !value.value.empty();
  const std::vector<YamlText> parts = flow ? flow_items(value) : block;
  const bool numbered = flow ? value.value[0] == '{' : !parts.empty() && !parts[0].value.starts_with("-");
  std::vector<YamlItem> items;
  for (const YamlText& part : parts) {
    items.push_back(numbered ? numbered_item(part) : listed_item(part, !flow));
    if (items.back().value.empty()) wrong(part.line, "item ", items.size() - 1, " of '", key, "' is empty");
  }
  return items;
}

YamlItem YamlFile::listed_item(const YamlText& part, bool dashed) const {
  if (dashed && !part.value.starts_with("- "))
    wrong(part.line, "'", printable(part.value, 40), "' is no '- NAME', as the lines before it");
  return {{},
          plain(std::string(trim(std::string_view(part.value).substr(dashed ? 2 : 0))), part.line),
          part.line};
}

YamlItem YamlFile::numbered_item(const YamlText& part) const {
  const size_t colon = colon_of(part.value);
  const auto number =
      colon == std::string::npos
          ? std::nullopt
          : parse_int(plain(std::string(trim(std::string_view(part.value).substr(0, colon))), part.line));
  if (!number) wrong(part.line, "'", printable(part.value, 40), "' is no 'NUMBER: NAME', as '0: cat'");
  return {number, plain(std::string(trim(std::string_view(part.value).substr(colon + 1))), part.line),
          part.line};
}

// Reads a line; `i` moves past all lines of a list in brackets.
void YamlFile::read_line(const std::vector<std::string>& lines, size_t& i) {
  const std::string_view content = without_comment(lines[i]);
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
  if (is_bracketed(entry.value.value))
    while (!is_closed(entry.value.value)) {
      if (++i >= lines.size()) wrong(number, "the list of '", printable(key, 40), "' is not closed");
      entry.value.value += ' ';
      entry.value.value += trim(without_comment(lines[i]));
    }
  const auto [at, first] = entries_.try_emplace(key, std::move(entry));
  if (!first) wrong(number, "repeats the key '", printable(key, 40), "'");
  last_ = &at->second;
}

// Returns the value of a plain or quoted text.
std::string YamlFile::plain(const std::string& raw, int64_t line) const {
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
std::vector<YamlText> YamlFile::flow_items(const YamlText& list) {
  std::string_view rest = std::string_view(list.value).substr(1, list.value.size() - 2);
  std::vector<YamlText> items;
  while (!trim(rest).empty()) {
    const size_t comma = find_unquoted(rest, [&](size_t i) { return rest[i] == ','; });
    items.push_back({std::string(trim(rest.substr(0, comma))), list.line});
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return items;
}

}  // namespace tessera
