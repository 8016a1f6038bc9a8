// Configurations of other programs, read by the same `visit` as ours (config.h). Keys have that program's
// names. Unlike in a recipe, an unknown key is not an error: its name is collected, so that a caller can
// refuse or print it.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"

namespace tessera {

namespace config_detail {

template <class Config>
void read_published_into(Config& config, const Value& table, const std::string& where,
                         const std::string& prefix, std::vector<std::string>& unread) {
  if (!table.is_table()) fail_usage(where, ": ", prefix, " is ", table.type_name(), ", must be an object");
  std::vector<std::string> known;
  const std::string dot = prefix.empty() ? "" : prefix + ".";
  Visitor read{[&](const char* key, auto& field, const auto& rule, const char*) {
    known.emplace_back(key);
    const auto& entries = table.as_table();
    const auto found =
        std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == key; });
    if (found == entries.end()) return;
    if constexpr (Visitable<std::remove_reference_t<decltype(field)>>) {
      read_published_into(field, found->second, where, dot + key, unread);
    } else {
      const std::string path = text(where, ": ", dot, key);
      read_field(field, found->second, path);
      check_rule(field, rule, path);
    }
  }};
  config.visit(read);
  for (const auto& [name, value] : table.as_table())
    if (std::find(known.begin(), known.end(), name) == known.end()) unread.push_back(dot + name);
}

}  // namespace config_detail

// Returns a config read from the table of the file `where`; absent keys keep their defaults. Appends the dotted
// names of keys that the struct lacks to `unread`. Throws a usage error for a wrong type or value, with the
// file and the key.
template <class Config>
Config read_published(const Value& table, const std::string& where, std::vector<std::string>& unread,
                      Config defaults = {}) {
  config_detail::read_published_into(defaults, table, where, "", unread);
  return defaults;
}

}  // namespace tessera
