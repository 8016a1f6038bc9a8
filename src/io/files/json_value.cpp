#include "io/files/json_value.h"

#include <cmath>

#include "core/error.h"
#include "io/files/json.h"

namespace tessera::train {
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
    // JSON has no such numbers, and a silent null would cause an error much later.
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

}  // namespace tessera::train
