// A small tree of settings: the form of a parsed TOML recipe, and the source of typed configs. Its text in TOML.
//
// Tables keep insertion order, so that a written recipe reads like the given one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {

class Value {
 public:
  using Array = std::vector<Value>;
  using Table = std::vector<std::pair<std::string, Value>>;

  Value() : data_(Table{}) {}
  Value(bool v) : data_(v) {}                       // NOLINT: settings read naturally as literals
  Value(int v) : data_(static_cast<int64_t>(v)) {}  // NOLINT
  Value(int64_t v) : data_(v) {}                    // NOLINT
  Value(double v) : data_(v) {}                     // NOLINT
  Value(const char* v) : data_(std::string(v)) {}   // NOLINT
  Value(std::string v) : data_(std::move(v)) {}     // NOLINT
  Value(Array v) : data_(std::move(v)) {}           // NOLINT
  Value(Table v) : data_(std::move(v)) {}           // NOLINT

  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_double() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_int() || is_double(); }
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_array() const { return std::holds_alternative<Array>(data_); }
  bool is_table() const { return std::holds_alternative<Table>(data_); }

  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const { return std::get<int64_t>(data_); }
  double as_double() const { return is_int() ? static_cast<double>(as_int()) : std::get<double>(data_); }
  const std::string& as_string() const { return std::get<std::string>(data_); }
  const Array& as_array() const { return std::get<Array>(data_); }
  Array& as_array() { return std::get<Array>(data_); }
  const Table& as_table() const { return std::get<Table>(data_); }
  Table& as_table() { return std::get<Table>(data_); }

  // Returns the entry of a table, or null. Dotted paths ("optimiser.lr") lead into nested tables.
  const Value* find(std::string_view path) const;
  Value* find(std::string_view path);
  // Sets the entry at a dotted path, creating tables on the way.
  void set(std::string_view path, Value value);

  // Returns "a boolean", "an integer", … for error lines.
  const char* type_name() const;
  bool operator==(const Value& other) const = default;

 private:
  std::variant<bool, int64_t, double, std::string, Array, Table> data_;
};

// Merges `over` into `base`: tables merge key by key, other values are replaced.
void merge(Value& base, const Value& over);

// Returns the first dotted key at which two trees differ, with both sides; empty if they are equal.
std::string first_difference(const Value& a, const Value& b, const std::string& prefix = "");

// Conversion between TOML and settings trees.

// Parses a document. Errors contain `where` (a file name) and the line. Refuses nesting deeper than 16 levels
// and text over 1 MiB.
Value parse_toml(std::string_view document, const std::string& where);

// Parses one value, as on the right of `key =`; anything that is not a TOML value becomes a plain string.
Value parse_toml_value(std::string_view value);

// Returns one value on one line.
std::string toml_text(const Value& value);

// Returns a whole document: plain keys first, then [tables].
std::string write_toml(const Value& table);

}  // namespace tessera
