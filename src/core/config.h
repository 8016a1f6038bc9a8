// Typed configs: one `visit` per struct lists its fields; reading, checking, printing and saving use it.
//
//   enum class Kind { hard, soft };
//   template <>
//   struct EnumNames<Kind> {
//     static constexpr std::array names = {"hard", "soft"};  // in the order of the values
//   };
//   struct AdamWConfig {
//     double lr = 1e-3;            // with its default
//     int64_t warmup = 0;
//     Kind kind = Kind::hard;
//     template <class V>
//     void visit(V& v) {
//       v("lr", lr, above(0), "base learning rate");
//       v("warmup", warmup, at_least(0), "steps");
//       v("kind", kind, choice<Kind>(), "what the teacher shows");
//     }
//   };
//   AdamWConfig config = read_config<AdamWConfig>(recipe, "optimiser");
//
// Throws a usage error for an unknown key, a wrong type, a value out of range or an unknown name. The message
// contains the key, its place and the allowed values. A rule of a list applies to each element.
// Fields: bool, int64_t, double, std::string, an enum with EnumNames, another config, Value (taken as it is),
// and std::vector of those.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "core/value.h"

namespace tessera {

// The names of an enum's values, as spelled in recipes and files; see above.
template <class E>
struct EnumNames;
template <class E>
concept NamedEnum = std::is_enum_v<E> && requires {
  EnumNames<E>::names;
};

template <NamedEnum E>
std::string name_of(E value) {
  return EnumNames<E>::names[static_cast<size_t>(value)];
}
template <NamedEnum E>
std::vector<std::string> names_of() {
  return {EnumNames<E>::names.begin(), EnumNames<E>::names.end()};
}
// Returns the value of that name. Throws a usage error that lists the names; it starts with `what`
// ("task.loss").
template <NamedEnum E>
E parse_enum(const std::string& name, const std::string& what) {
  const std::vector<std::string> names = names_of<E>();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    fail_usage(what, " is '", printable(name), "', must be ", join(names, ", "), did_you_mean(name, names));
  return static_cast<E>(found - names.begin());
}

// The range of a number. `without_low`, `without_high`: that bound is excluded.
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool without_low = false, without_high = false;

  bool holds(double value) const {
    return (without_low ? value > low : value >= low) && (without_high ? value < high : value <= high);
  }
  // "at least 1", "above 0", "0 to 1", "at least 0 and below 1".
  std::string text() const;
};
constexpr Range between(double low, double high) { return {.low = low, .high = high}; }
constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range above(double low) { return {.low = low, .without_low = true}; }
constexpr Range below(double high) { return {.high = high, .without_high = true}; }
// At least `low` and below `high`, such as a rate that must not reach 1.
constexpr Range from_to_below(double low, double high) {
  return {.low = low, .high = high, .without_high = true};
}
// Above `low` and at most `high`.
constexpr Range above_to(double low, double high) { return {.low = low, .high = high, .without_low = true}; }

// For an enum or a list of them: allows the names of its values.
template <class E>
struct Choice {
  std::string text() const { return join(names_of<E>(), ", "); }
};
template <class E>
constexpr Choice<E> choice() {
  return {};
}

namespace config_detail {

struct NoRule {
  std::string text() const { return ""; }
};
struct Nothing {
  template <class T>
  void operator()(const char*, T&, const char* = "") {}
  template <class T, class Rule>
  void operator()(const char*, T&, const Rule&, const char*) {}
};
// Calls call(key, field, rule, meaning) for each field, whether or not it has a rule.
template <class Call>
struct Visitor {
  Call call;
  template <class T>
  void operator()(const char* key, T& field, const char* meaning = "") {
    call(key, field, NoRule{}, meaning);
  }
  template <class T, class Rule>
  void operator()(const char* key, T& field, const Rule& rule, const char* meaning) {
    call(key, field, rule, meaning);
  }
};
template <class Call>
Visitor(Call) -> Visitor<Call>;

template <class T>
concept Visitable = requires(T t, Nothing n) {
  t.visit(n);
};

template <class T>
const char* wanted_type() {
  if constexpr (std::is_same_v<T, bool>)
    return "true or false";
  else if constexpr (std::is_same_v<T, int64_t>)
    return "an integer";
  else if constexpr (std::is_same_v<T, double>)
    return "a number";
  else if constexpr (std::is_same_v<T, std::string> || std::is_enum_v<T>)
    return "a string";
  else
    return "an array";
}

template <class T>
void check_rule(const T& field, const Range& range, const std::string& path) {
  if constexpr (std::is_arithmetic_v<T>) {
    if (!range.holds(static_cast<double>(field))) fail_usage(path, " = ", field, ", must be ", range.text());
  } else {
    for (const auto& element : field) check_rule(element, range, path);
  }
}
template <class T, class Rule>
void check_rule(const T&, const Rule&, const std::string&) {}  // names are checked when they are read

template <class Config>
void read_into(Config& config, const Value& table, const std::string& where);

// Reads one field. Throws with its path: "optimiser.betas[1] is a string, must be a number".
template <class T>
void read_field(T& field, const Value& value, const std::string& path) {
  bool right = true;
  if constexpr (Visitable<T>) {
    read_into(field, value, path);
  } else if constexpr (std::is_same_v<T, Value>) {
    field = value;
  } else if constexpr (std::is_same_v<T, bool>) {
    if ((right = value.is_bool())) field = value.as_bool();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if ((right = value.is_int())) field = value.as_int();
  } else if constexpr (std::is_same_v<T, double>) {
    if ((right = value.is_number())) field = value.as_double();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if ((right = value.is_string())) field = value.as_string();
  } else if constexpr (NamedEnum<T>) {
    if ((right = value.is_string())) field = parse_enum<T>(value.as_string(), path);
  } else if ((right = value.is_array())) {  // std::vector
    field.clear();
    for (const Value& item : value.as_array()) {
      typename T::value_type element{};
      read_field(element, item, text(path, "[", field.size(), "]"));
      field.push_back(std::move(element));
    }
  }
  if (!right) fail_usage(path, " is ", value.type_name(), ", must be ", wanted_type<T>());
}

template <class T>
Value to_value(const T& field);

template <class Config>
Value table_of(const Config& config) {
  Value table;
  Visitor write{[&](const char* key, auto& field, const auto&, const char*) {
    table.as_table().emplace_back(key, to_value(field));
  }};
  const_cast<Config&>(config).visit(write);
  return table;
}

template <class T>
Value to_value(const T& field) {
  if constexpr (Visitable<T>)
    return table_of(field);
  else if constexpr (std::is_same_v<T, Value>)
    return field;
  else if constexpr (NamedEnum<T>)
    return Value(name_of(field));
  else if constexpr (std::is_constructible_v<Value, T>)
    return Value(field);
  else {
    Value::Array items;
    for (const auto& item : field) items.push_back(to_value(item));
    return items;
  }
}

template <class Config>
void read_into(Config& config, const Value& table, const std::string& where) {
  if (!table.is_table()) fail_usage(where, " is ", table.type_name(), ", must be a table");
  std::vector<std::string> known;
  Visitor read{[&](const char* key, auto& field, const auto& rule, const char*) {
    known.emplace_back(key);
    for (const auto& [name, value] : table.as_table())
      if (name == key) {
        const std::string path = where.empty() ? name : where + "." + name;
        read_field(field, value, path);
        check_rule(field, rule, path);
      }
  }};
  config.visit(read);
  for (const auto& [name, value] : table.as_table())
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail_usage("unknown key '", where.empty() ? name : where + "." + name, "'", did_you_mean(name, known));
}

}  // namespace config_detail

// Returns a config read from a table; absent keys keep their defaults. `where` is the table's dotted path.
template <class Config>
Config read_config(const Value& table, const std::string& where = "", Config defaults = {}) {
  config_detail::read_into(defaults, table, where);
  return defaults;
}

// Returns the config as a table with every field.
template <class Config>
Value write_config(const Config& config) {
  return config_detail::table_of(config);
}

// One key of a config, for help.
struct KeyDescription {
  std::string key;
  Value standard;
  std::string meaning;  // with the range or the choices if the field has a rule
};

// Returns all keys of a config with its current values, as "where.key". Keys of nested configs follow in
// place.
template <class Config>
std::vector<KeyDescription> describe_config(const Config& config, const std::string& where) {
  std::vector<KeyDescription> keys;
  config_detail::Visitor describe{[&](const char* key, auto& field, const auto& rule, const char* meaning) {
    const std::string path = where + "." + key;
    if constexpr (config_detail::Visitable<std::decay_t<decltype(field)>>) {
      for (KeyDescription& inner : describe_config(field, path)) keys.push_back(std::move(inner));
    } else {
      const std::string allowed = rule.text();
      keys.push_back({path, config_detail::to_value(field),
                      allowed.empty() ? std::string(meaning) : text(meaning, " (", allowed, ")")});
    }
  }};
  const_cast<Config&>(config).visit(describe);
  return keys;
}

}  // namespace tessera
