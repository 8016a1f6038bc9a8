#include "train/json_value.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tessera::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostBytes = size_t{16} << 20;
constexpr int kMostDepth = 16;

Value from_json(const Json& json, const std::string& where, int depth) {
  if (depth > kMostDepth) fail(where, ": JSON nested deeper than ", kMostDepth, " levels");
  if (json.is_object()) {
    Value::Table table;
    for (const auto& [key, child] : json.items()) table.emplace_back(key, from_json(child, where, depth + 1));
    return table;
  }
  if (json.is_array()) {
    Value::Array items;
    for (const Json& child : json) items.push_back(from_json(child, where, depth + 1));
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
    // JSON has no such numbers, and a silent null would come back as an error much later.
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

Value parse_json(std::string_view json, const std::string& where) {
  if (json.size() > kMostBytes)
    fail(where, ": ", json.size(), " bytes of JSON, at most ", kMostBytes, " are read");
  const auto limit_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMostDepth) fail(where, ": JSON nested deeper than ", kMostDepth, " levels");
    return true;
  };
  try {
    return from_json(Json::parse(json, limit_depth), where, 0);
  } catch (const Json::exception&) {
    fail(where, ": is not JSON");
  }
}

std::string json_text(const Value& value, int indent) {
  return to_json(value).dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera::train
