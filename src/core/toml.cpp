#include "core/toml.h"

#include <algorithm>
#define TOML_EXCEPTIONS 1
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "core/error.h"
#include "core/text.h"

namespace tessera {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxDepth = 16;

Value from_node(const toml::node& node, const std::string& where, int depth) {
  if (depth > kMaxDepth)
    fail_usage(where, ":", node.source().begin.line, ": nested deeper than ", kMaxDepth, " levels");
  if (const auto* table = node.as_table()) {
    // toml++ sorts its keys; the source position brings back the writer's order.
    std::vector<std::pair<toml::source_position, std::pair<std::string, Value>>> entries;
    for (const auto& [key, child] : *table)
      entries.emplace_back(key.source().begin,
                           std::pair{std::string(key.str()), from_node(child, where, depth + 1)});
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    Value::Table out;
    for (auto& [position, entry] : entries) out.push_back(std::move(entry));
    return out;
  }
  if (const auto* array = node.as_array()) {
    Value::Array out;
    for (const auto& child : *array) out.push_back(from_node(child, where, depth + 1));
    return out;
  }
  if (const auto v = node.as_string()) return Value(std::string(v->get()));
  if (const auto v = node.as_boolean()) return Value(v->get());
  if (const auto v = node.as_integer()) return Value(v->get());
  if (const auto v = node.as_floating_point()) return Value(v->get());
  fail_usage(where, ":", node.source().begin.line, ": dates and times have no meaning in a recipe");
}

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      static constexpr char hex[] = "0123456789abcdef";
      out += text("\\u00", hex[(c >> 4) & 15], hex[c & 15]);
    } else
      out += c;
  }
  return out + '"';
}

std::string key_text(const std::string& key) {
  const bool bare = !key.empty() && key.find_first_not_of(
                                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789_-") == std::string::npos;
  return bare ? key : quoted(key);
}

void write_table(const Value& table, const std::string& prefix, std::string& out) {
  for (const auto& [key, value] : table.as_table())
    if (!value.is_table()) out += text(key_text(key), " = ", toml_text(value), "\n");
  for (const auto& [key, value] : table.as_table()) {
    if (!value.is_table()) continue;
    const std::string path = prefix.empty() ? key_text(key) : prefix + "." + key_text(key);
    out += text(out.empty() ? "" : "\n", "[", path, "]\n");
    write_table(value, path, out);
  }
}

}  // namespace

Value parse_toml(std::string_view document, const std::string& where) {
  if (document.size() > kMaxBytes)
    fail_usage(where, ": ", document.size(), " bytes, a recipe has at most 1 MiB");
  try {
    const toml::table table = toml::parse(document, where);
    return from_node(table, where, 0);
  } catch (const toml::parse_error& error) {
    fail_usage(where, ":", error.source().begin.line, ": ", error.description());
  }
}

Value parse_toml_value(std::string_view value) {
  try {
    const Value table = parse_toml(text("v = ", value), "value");
    if (table.as_table().size() == 1) return table.as_table()[0].second;
  } catch (const Error&) {  // not TOML: the user left the quotes out
  }
  return Value(std::string(value));
}

std::string toml_text(const Value& value) {
  if (value.is_bool()) return value.as_bool() ? "true" : "false";
  if (value.is_int()) return std::to_string(value.as_int());
  if (value.is_double()) return shortest(value.as_double());
  if (value.is_string()) return quoted(value.as_string());
  std::string out;
  if (value.is_array()) {
    for (const Value& item : value.as_array()) out += (out.empty() ? "" : ", ") + toml_text(item);
    return "[" + out + "]";
  }
  for (const auto& [key, item] : value.as_table())
    out += text(out.empty() ? "" : ", ", key_text(key), " = ", toml_text(item));
  return out.empty() ? "{}" : "{ " + out + " }";
}

std::string write_toml(const Value& table) {
  std::string out;
  write_table(table, "", out);
  return out;
}

}  // namespace tessera
