#include "core/value.h"

#include <algorithm>
#include <cmath>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"

namespace tessera {

constexpr std::ptrdiff_t kMostParts = 64;  // most parts of a dotted key, since trees are walked recursively

static Value* entry(Value& table, std::string_view key) {
  if (!table.is_table()) return nullptr;
  for (auto& [name, value] : table.as_table())
    if (name == key) return &value;
  return nullptr;
}

Value* Value::find(std::string_view path) {
  Value* at = this;
  while (at) {
    const size_t dot = path.find('.');
    at = entry(*at, path.substr(0, dot));
    if (dot == std::string_view::npos) return at;
    path.remove_prefix(dot + 1);
  }
  return nullptr;
}

const Value* Value::find(std::string_view path) const { return const_cast<Value*>(this)->find(path); }

void Value::set(std::string_view path, Value value) {
  if (std::count(path.begin(), path.end(), '.') >= kMostParts)
    fail_usage("the key '", printable(path, 40), "' has more than ", kMostParts, " parts");
  const size_t dot = path.find('.');
  const std::string_view key = path.substr(0, dot);
  if (!is_table()) data_ = Table{};
  Value* child = entry(*this, key);
  if (!child) child = &as_table().emplace_back(std::string(key), Value()).second;
  if (dot == std::string_view::npos)
    *child = std::move(value);
  else
    child->set(path.substr(dot + 1), std::move(value));
}

const char* Value::type_name() const {
  static constexpr const char* names[] = {"a boolean", "an integer", "a number",
                                          "a string",  "an array",   "a table"};
  return names[data_.index()];
}

void merge(Value& base, const Value& over) {
  if (!base.is_table() || !over.is_table()) {
    base = over;
    return;
  }
  for (const auto& [key, value] : over.as_table()) {
    if (Value* existing = entry(base, key))
      merge(*existing, value);
    else
      base.as_table().emplace_back(key, value);
  }
}

std::string first_difference(const Value& a, const Value& b, const std::string& prefix) {
  if (!a.is_table() || !b.is_table())
    return a == b ? "" : text(prefix, ": ", toml_text(a), " against ", toml_text(b));
  const auto path = [&](const std::string& key) { return prefix.empty() ? key : prefix + "." + key; };
  for (const auto& [key, value] : a.as_table()) {
    const Value* other = entry(const_cast<Value&>(b), key);
    if (!other) return text(path(key), ": ", toml_text(value), " against nothing");
    if (auto difference = first_difference(value, *other, path(key)); !difference.empty()) return difference;
  }
  for (const auto& [key, value] : b.as_table())
    if (!entry(const_cast<Value&>(a), key)) return text(path(key), ": nothing against ", toml_text(value));
  return "";
}

namespace {

// Prints 1 rather than 1.0, since many ranges are of integers.
std::string plain(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? text(static_cast<int64_t>(value))
                                                              : shortest(value);
}

}  // namespace

std::string Range::text() const {
  const bool has_low = std::isfinite(low), has_high = std::isfinite(high);
  if (has_low && has_high && !without_low && !without_high) return plain(low) + " to " + plain(high);
  const std::string lower = (without_low ? "above " : "at least ") + plain(low);
  const std::string upper = (without_high ? "below " : "at most ") + plain(high);
  return !has_high ? lower : !has_low ? upper : lower + " and " + upper;
}

}  // namespace tessera
