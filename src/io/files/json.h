// JSON from untrusted sources: limits size, depth and number of keys during parsing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <nlohmann/json.hpp>
#include <streambuf>
#include <string>
#include <string_view>

#include "core/value.h"

namespace tessera {

struct JsonLimits {
  uint64_t max_bytes = uint64_t{16} << 20;
  int max_depth = 16;
  size_t max_keys = 4096;  // per object
};

// Throws Error that starts with `where`: too long, nested too deep, a repeated key, too many keys, or not
// JSON (with the first wrong byte, counted from 1; a NUL is an error, not the end). Tree is nlohmann::json,
// or nlohmann::ordered_json if the order of keys matters.
template <class Tree = nlohmann::json>
Tree parse_json(std::string_view document, const std::string& where, const JsonLimits& limits = {});

extern template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
extern template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

// Returns the whole number at `key` of `where`. Throws Error for anything else, for 3.0 too, and outside of `least` to
// `most`: the conversion of the JSON library keeps some bits of such a number.
int64_t json_integer(const nlohmann::json& value, const std::string& where, std::string_view key,
                     int64_t least = 0, int64_t most = INT64_MAX);

// Reads JSON as Python's json module writes it, with NaN, Infinity and -Infinity as numbers, which JSON does
// not allow. Replaces each of the three in another stream by an empty string ("") and spaces. A parser then
// keeps its byte positions and finds a value that is not a number. Text inside strings stays as it is.
class NumberLiterals final : public std::streambuf {
 public:
  explicit NumberLiterals(std::istream& from) : from_(from) {}

 protected:
  int_type underflow() override;

 private:
  void replace_literals(char* begin, char* end);

  static constexpr std::streamsize kBlock = 1 << 16, kLongest = 16;
  std::istream& from_;
  std::array<char, kBlock + kLongest> block_;
  bool in_text_ = false, escaped_ = false;
};

// Reads JSON text as a settings tree, for manifests and the metadata of weight files. `where` starts error messages.
// Throws for everything that parse_json refuses, and for null.
Value parse_json_value(std::string_view json, const std::string& where);

// Writes doubles so that they read back bit for bit. `indent` < 0: one line.
std::string json_text(const Value& value, int indent = -1);

}  // namespace tessera
