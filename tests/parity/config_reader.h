// A table of a case's configuration that has to be read as a whole.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "core/error.h"

namespace tessera::parity {

// Arguments of published code by their names. A handler reads those it understands; finish() fails for a key that
// nobody has read, so that no option of a case is passed over.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& table, std::string where) : table_(table), where_(std::move(where)) {}

  // Null stands for an argument that is not given.
  bool has(const std::string& key) {
    read_.insert(key);
    const auto found = table_.find(key);
    return found != table_.end() && !found->is_null();
  }
  const nlohmann::json& at(const std::string& key) {
    check(has(key), where_, " has no '", key, "'");
    return table_.at(key);
  }
  template <class T>
  T value(const std::string& key, T otherwise) {
    return has(key) ? table_.at(key).get<T>() : otherwise;
  }
  std::string value(const std::string& key, const char* otherwise) {
    return value(key, std::string(otherwise));
  }
  // A setting that we have in one form alone.
  void expect(const std::string& key, const nlohmann::json& form) {
    check(!has(key) || table_.at(key) == form, where_, ": '", key,
          "' = ", has(key) ? table_.at(key).dump() : "", " is a setting unknown here, must be ", form.dump());
  }
  // What changes no number that is compared.
  void pass_over(std::initializer_list<const char*> keys) { read_.insert(keys.begin(), keys.end()); }

  void finish() const {
    for (const auto& [key, value] : table_.items())
      check(read_.contains(key), where_, ": '", key, "' = ", value.dump(), " is a setting unknown here");
  }

 private:
  const nlohmann::json& table_;
  std::string where_;
  std::set<std::string> read_;
};

}  // namespace tessera::parity
