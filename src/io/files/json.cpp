#include "io/files/json.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace tessera {

namespace {

// Checks depth and keys. A callback of the parser would do, but then each object of a list costs a pass over the list.
template <class Tree>
class Watch : public nlohmann::json_sax<Tree> {
 public:
  Watch(const std::string& where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(typename Tree::binary_t&) override { return true; }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return start_array(0);
  }
  bool key(std::string& name) override {
    if (!keys_.back().insert(name).second) fail(where_, ": JSON key '", printable(name), "' occurs twice");
    if (keys_.back().size() > limits_.max_keys)
      fail(where_, ": a JSON object has more than ", limits_.max_keys, " keys");
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return end_array();
  }
  bool start_array(size_t) override {
    if (depth_++ >= limits_.max_depth) fail(where_, ": JSON is nested deeper than ", limits_.max_depth);
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  // The parser of the tree names the place.
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  const std::string& where_;
  const JsonLimits& limits_;
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;  // one set per open object
};

}  // namespace

template <class Tree>
Tree parse_json(std::string_view document, const std::string& where, const JsonLimits& limits) {
  if (document.size() > limits.max_bytes)
    fail(where, " has ", document.size(), " bytes of JSON, at most ", limits.max_bytes, " are read");
  const auto no_json = [&](size_t byte) { fail(where, " is not JSON: it goes wrong at byte ", byte); };
  // The parser treats a NUL as the end of the text, so a NUL could hide the rest.
  if (const size_t nul = document.find('\0'); nul != std::string_view::npos) no_json(nul + 1);
  Watch<Tree> watch(where, limits);
  Tree::sax_parse(document, &watch);
  try {
    return Tree::parse(document);
  } catch (const typename Tree::parse_error& error) {
    no_json(error.byte);
  } catch (const typename Tree::exception&) {  // a number that fits no type
    fail(where, " is not usable JSON");
  }
  return {};
}

template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

int64_t json_integer(const nlohmann::json& value, const std::string& where, std::string_view key,
                     int64_t least, int64_t most) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) &&
                    value.get<int64_t>() >= least && value.get<int64_t>() <= most;
  if (!fits)
    fail(where, ": ", key, " is ",
         printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 40),
         ", must be a whole number from ", least, most == INT64_MAX ? "" : " to " + std::to_string(most));
  return value.get<int64_t>();
}

namespace {

bool is_part_of_literal(char c) { return c == '-' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// Returns the length of a literal at the start of `rest`, or 0.
size_t literal_at(std::string_view rest) {
  for (const std::string_view literal : {"NaN", "Infinity", "-Infinity"})
    if (rest.starts_with(literal)) return literal.size();
  return 0;
}

}  // namespace

NumberLiterals::int_type NumberLiterals::underflow() {
  from_.read(block_.data(), kBlock);
  std::streamsize size = from_.gcount();
  // Extend the block so that it does not end inside a literal.
  while (size > 0 && size < std::ssize(block_) && is_part_of_literal(block_[static_cast<size_t>(size - 1)]) &&
         from_.read(block_.data() + size, 1))
    ++size;
  if (size == 0) return traits_type::eof();
  replace_literals(block_.data(), block_.data() + size);
  setg(block_.data(), block_.data(), block_.data() + size);
  return traits_type::to_int_type(block_[0]);
}

void NumberLiterals::replace_literals(char* begin, char* end) {
  for (char* at = begin; at != end; ++at) {
    if (escaped_) {
      escaped_ = false;
    } else if (*at == '"') {
      in_text_ = !in_text_;
    } else if (in_text_) {
      escaped_ = *at == '\\';
    } else if (*at == 'N' || *at == 'I' || *at == '-') {
      const size_t length = literal_at({at, static_cast<size_t>(end - at)});
      if (length == 0) continue;
      std::fill_n(at, length, ' ');
      at[0] = at[1] = '"';
      at += length - 1;
    }
  }
}

namespace {

using Json = nlohmann::ordered_json;

Value from_json(const Json& json, const std::string& where) {
  if (json.is_object()) {
    Value::Table table;
    for (const auto& [key, child] : json.items()) table.emplace_back(key, from_json(child, where));
    return table;
  }
  if (json.is_array()) {
    Value::Array items;
    for (const Json& child : json) items.push_back(from_json(child, where));
    return items;
  }
  if (json.is_string()) return json.get<std::string>();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    fail(where, ": the integer ", json.get<uint64_t>(), " is too large");
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number_float()) return json.get<double>();
  fail(where, ": null has no meaning here");
}

Json to_json(const Value& value) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_int()) return value.as_int();
  if (value.is_string()) return value.as_string();
  if (value.is_double()) {
    // JSON has no such numbers, and writing null would only cause an error much later.
    check(std::isfinite(value.as_double()), "JSON: ", value.as_double(), " cannot be written");
    return value.as_double();
  }
  if (value.is_array()) {
    Json array = Json::array();
    for (const Value& item : value.as_array()) array.push_back(to_json(item));
    return array;
  }
  Json object = Json::object();
  for (const auto& [key, item] : value.as_table()) object[key] = to_json(item);
  return object;
}

}  // namespace

Value parse_json_value(std::string_view json, const std::string& where) {
  return from_json(parse_json<Json>(json, where), where);
}

std::string json_text(const Value& value, int indent) {
  return to_json(value).dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
