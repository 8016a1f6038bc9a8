// Typed configs: a struct whose one `visit` lists its fields is read, printed, compared and saved through it.
//
//   struct AdamWConfig {
//     double lr = 1e-3;            // with its default
//     int64_t warmup = 0;
//     template <class V> void visit(V& v) { v("lr", lr, "base learning rate"); v("warmup", warmup, "steps");
//     }
//   };
//   AdamWConfig config = read_config<AdamWConfig>(recipe, "optimiser");
//
// Unknown keys and wrong types are usage errors that name the key, its place, and the nearest right name.
// Fields: bool, int64_t, double, std::string, another config, Value (taken as it is), and std::vector of
// those.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "core/value.h"

namespace tessera {

namespace config_detail {

struct Nothing {
  template <class T>
  void operator()(const char*, T&, const char* = "") {}
};
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
  else if constexpr (std::is_same_v<T, std::string>)
    return "a string";
  else
    return "an array";
}

template <class Config>
void read_into(Config& config, const Value& table, const std::string& where);

// Fills one field, or fails with its path: "optimiser.betas[1] is a string, must be a number".
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
  auto write = [&](const char* key, auto& field, const char* = "") {
    table.as_table().emplace_back(key, to_value(field));
  };
  const_cast<Config&>(config).visit(write);
  return table;
}

template <class T>
Value to_value(const T& field) {
  if constexpr (Visitable<T>)
    return table_of(field);
  else if constexpr (std::is_same_v<T, Value>)
    return field;
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
  auto read = [&](const char* key, auto& field, const char* = "") {
    known.emplace_back(key);
    for (const auto& [name, value] : table.as_table())
      if (name == key) read_field(field, value, where.empty() ? name : where + "." + name);
  };
  config.visit(read);
  for (const auto& [name, value] : table.as_table())
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail_usage("unknown key '", where.empty() ? name : where + "." + name, "'", did_you_mean(name, known));
}

}  // namespace config_detail

// Fills a config from a table; keys that are absent keep their defaults. `where` is the table's dotted path.
template <class Config>
Config read_config(const Value& table, const std::string& where = "", Config defaults = {}) {
  config_detail::read_into(defaults, table, where);
  return defaults;
}

// The config as a table with every field.
template <class Config>
Value write_config(const Config& config) {
  return config_detail::table_of(config);
}

// One key of a config, for help.
struct KeyDescription {
  std::string key;
  Value standard;
  std::string meaning;
};

// All keys of a config as it stands, "where.key" each; those of configs in it follow in their places.
template <class Config>
std::vector<KeyDescription> describe_config(const Config& config, const std::string& where) {
  std::vector<KeyDescription> keys;
  auto describe = [&](const char* key, auto& field, const char* meaning = "") {
    const std::string path = where + "." + key;
    if constexpr (config_detail::Visitable<std::decay_t<decltype(field)>>) {
      for (KeyDescription& inner : describe_config(field, path)) keys.push_back(std::move(inner));
    } else {
      keys.push_back({path, config_detail::to_value(field), meaning});
    }
  };
  const_cast<Config&>(config).visit(describe);
  return keys;
}

}  // namespace tessera
