#include "serve/v2.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/text.h"
#include "io/files/json.h"

namespace tessera::serve {
namespace {

using answer::Array;
using answer::Datatype;
using nlohmann::json;

constexpr int64_t kMostElements = int64_t{1} << 31;
constexpr size_t kMostArrays = 64, kMostExtents = 8;
constexpr size_t kMostListed = size_t{1} << 24;  // elements of a reply in JSON, which takes 16 bytes for each
constexpr JsonLimits kV2Limits{.max_bytes = uint64_t{256} << 20, .max_depth = 16};
static_assert(std::endian::native == std::endian::little, "binary tensors are little-endian");

const json* member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string string_member(const json& object, const char* key, const std::string& where) {
  const json* value = member(object, key);
  if (!value || !value->is_string()) fail_usage(where, " has no string '", key, "'");
  return value->get<std::string>();
}

std::vector<int64_t> shape_of(const json& input, const std::string& where) {
  const json* shape = member(input, "shape");
  if (!shape || !shape->is_array()) fail_usage(where, " has no list 'shape'");
  if (shape->size() > kMostExtents)
    fail_usage(where, " has ", shape->size(), " extents, must have at most ", kMostExtents);
  std::vector<int64_t> extents;
  for (const json& extent : *shape) {
    if (!extent.is_number_integer() || (extent.is_number_unsigned() && extent.get<uint64_t>() > INT64_MAX))
      fail_usage(where, ": shape has ", extent.dump(-1, ' ', false, json::error_handler_t::replace),
                 ", must have whole numbers");
    extents.push_back(extent.get<int64_t>());
  }
  return extents;
}

template <class T>
void append(std::string& data, T value) {
  data.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Appends one number from a JSON list. Integers are checked against the range of their type.
template <class T>
void append_integer(std::string& data, const json& value, const std::string& where) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) &&
                    std::in_range<T>(value.get<int64_t>());
  if (!fits)
    fail_usage(where, " has ", printable(value.dump(-1, ' ', false, json::error_handler_t::replace), 40),
               ", must be a whole number of its datatype");
  append(data, static_cast<T>(value.get<int64_t>()));
}

void append_element(Array& array, const json& value, const std::string& where) {
  switch (array.type) {
    case Datatype::bytes:
      if (!value.is_string()) fail_usage(where, " is BYTES and has an element that is no string");
      array.texts.push_back(value.get<std::string>());
      return;
    case Datatype::boolean:
      if (!value.is_boolean()) fail_usage(where, " is BOOL and has an element that is no boolean");
      return append(array.data, static_cast<uint8_t>(value.get<bool>()));
    case Datatype::uint8:
      return append_integer<uint8_t>(array.data, value, where);
    case Datatype::int32:
      return append_integer<int32_t>(array.data, value, where);
    case Datatype::int64:
      return append_integer<int64_t>(array.data, value, where);
    default:
      break;
  }
  if (!value.is_number()) fail_usage(where, " has an element that is no number");
  if (array.type == Datatype::fp32)
    append(array.data, value.get<float>());
  else
    append(array.data, value.get<double>());
}

// Returns the elements of an array.
size_t size_of(const Array& array) {
  const size_t width = answer::size_of(array.type);
  return width == 0 ? array.texts.size() : array.data.size() / width;
}

// Flattens nested lists, which V2 allows.
void append_elements(Array& array, const json& values, int64_t most, int depth, const std::string& where) {
  if (depth > static_cast<int>(kMostExtents))
    fail_usage(where, " has lists in more than ", kMostExtents, " levels");
  for (const json& value : values) {
    if (value.is_array()) {
      append_elements(array, value, most, depth + 1, where);
      continue;
    }
    append_element(array, value, where);
    if (static_cast<int64_t>(size_of(array)) > most) fail_usage(where, " has more elements than its shape");
  }
}

void read_list(Array& array, const json& data, int64_t count, const std::string& where) {
  if (!data.is_array()) fail_usage(where, " has no list 'data'");
  append_elements(array, data, count, 1, where);
  if (const size_t found = size_of(array); static_cast<int64_t>(found) != count)
    fail_usage(where, " has ", found, " elements, its shape has ", count);
}

// Strings, each preceded by its length in 4 bytes.
void read_strings(Array& array, std::string_view bytes, int64_t count, const std::string& where) {
  while (!bytes.empty()) {
    uint32_t length = 0;
    if (bytes.size() < sizeof length) fail_usage(where, ": a length of BYTES is cut off");
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes.remove_prefix(sizeof length);
    if (length > bytes.size())
      fail_usage(where, ": element ", array.texts.size(), " of BYTES has ", length, " bytes, ", bytes.size(),
                 " are left");
    if (static_cast<int64_t>(array.texts.size()) == count)
      fail_usage(where, " has more elements than its shape");
    array.texts.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  if (static_cast<int64_t>(array.texts.size()) != count)
    fail_usage(where, " has ", array.texts.size(), " elements, its shape has ", count);
}

void read_binary(Array& array, std::string_view bytes, int64_t count, const std::string& where) {
  const size_t width = answer::size_of(array.type);
  if (width == 0) return read_strings(array, bytes, count, where);
  if (bytes.size() != static_cast<size_t>(count) * width)
    fail_usage(where, " has ", bytes.size(), " bytes, its shape and datatype have ",
               static_cast<uint64_t>(count) * width);
  array.data.assign(bytes);
}

// Returns `binary_data_size` of an input; nothing without it.
std::optional<uint64_t> binary_size(const json& input, const std::string& where) {
  const json* parameters = member(input, "parameters");
  const json* size =
      parameters && parameters->is_object() ? member(*parameters, "binary_data_size") : nullptr;
  if (!size) return std::nullopt;
  if (!size->is_number_unsigned()) fail_usage(where, ": binary_data_size must be a whole number");
  return size->get<uint64_t>();
}

Array read_input(const json& input, size_t index, std::string_view& binary) {
  if (!input.is_object()) fail_usage("inputs[", index, "] is no object");
  Array array{.name = string_member(input, "name", text("inputs[", index, "]"))};
  const std::string where = "input " + printable(array.name);
  array.type = answer::parse_datatype(string_member(input, "datatype", where));
  array.shape = shape_of(input, where);
  const int64_t count = answer::element_count(array.shape, kMostElements, where);
  if (const auto size = binary_size(input, where)) {
    if (member(input, "data")) fail_usage(where, " has 'data' and binary_data_size: give one");
    if (*size > binary.size())
      fail_usage(where, " has binary_data_size ", *size, ", ", binary.size(), " bytes are left in the body");
    read_binary(array, binary.substr(0, *size), count, where);
    binary.remove_prefix(*size);
  } else {
    const json* data = member(input, "data");
    if (!data) fail_usage(where, " has neither 'data' nor binary_data_size");
    read_list(array, *data, count, where);
  }
  return array;
}

Value value_of(const json& parameter, const std::string& key) {
  if (parameter.is_boolean()) return parameter.get<bool>();
  if (parameter.is_number_unsigned() && parameter.get<uint64_t>() > uint64_t{INT64_MAX})
    fail_usage("option '", printable(key), "' is too large");
  if (parameter.is_number_integer()) return parameter.get<int64_t>();
  if (parameter.is_number()) return parameter.get<double>();
  if (parameter.is_string()) return parameter.get<std::string>();
  if (!parameter.is_array())
    fail_usage("option '", printable(key), "' must be a boolean, number, string or list");
  Value::Array items;
  for (const json& item : parameter) {
    if (item.is_structured()) fail_usage("option '", printable(key), "' has a list in its list");
    items.push_back(value_of(item, key));
  }
  return items;
}

bool flag(const json& parameters, const char* key) {
  const json* value = parameters.is_object() ? member(parameters, key) : nullptr;
  return value && value->is_boolean() && value->get<bool>();
}

void read_parameters(const json& body, V2Request& out) {
  const json* parameters = member(body, "parameters");
  if (!parameters) return;
  if (!parameters->is_object()) fail_usage("'parameters' is no object");
  out.all_binary = flag(*parameters, "binary_data_output");
  for (const auto& [key, value] : parameters->items())
    if (key != "binary_data_output") out.request.options.as_table().emplace_back(key, value_of(value, key));
}

void read_outputs(const json& body, V2Request& out) {
  const json* outputs = member(body, "outputs");
  if (!outputs) return;
  if (!outputs->is_array() || outputs->size() > kMostArrays)
    fail_usage("'outputs' must be a list of at most ", kMostArrays);
  for (const json& output : *outputs) {
    if (!output.is_object()) fail_usage("'outputs' has an element that is no object");
    const std::string name = string_member(output, "name", "an element of 'outputs'");
    if (std::ranges::count(out.outputs, name) > 0)
      fail_usage("output '", printable(name), "' is requested twice");
    out.outputs.push_back(name);
    const json* parameters = member(output, "parameters");
    const bool given = parameters && parameters->is_object() && member(*parameters, "binary_data");
    out.binary.push_back(given ? flag(*parameters, "binary_data") : out.all_binary);
  }
}

template <class T>
void list_numbers(nlohmann::ordered_json& list, const std::string& data) {
  for (size_t i = 0; i + sizeof(T) <= data.size(); i += sizeof(T)) {
    T value{};
    std::memcpy(&value, data.data() + i, sizeof value);
    list.push_back(value);
  }
}

nlohmann::ordered_json list_of(const Array& array) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  switch (array.type) {
    case Datatype::bytes:
      for (const std::string& one : array.texts) list.push_back(one);
      break;
    case Datatype::boolean:
      for (const char one : array.data) list.push_back(one != 0);
      break;
    case Datatype::uint8:
      list_numbers<uint8_t>(list, array.data);
      break;
    case Datatype::int32:
      list_numbers<int32_t>(list, array.data);
      break;
    case Datatype::int64:
      list_numbers<int64_t>(list, array.data);
      break;
    case Datatype::fp32:
      list_numbers<float>(list, array.data);
      break;
    case Datatype::fp64:
      list_numbers<double>(list, array.data);
      break;
  }
  return list;
}

std::string binary_of(const Array& array) {
  if (array.type != Datatype::bytes) return array.data;
  std::string out;
  for (const std::string& one : array.texts) {
    append(out, static_cast<uint32_t>(one.size()));
    out += one;
  }
  return out;
}

nlohmann::ordered_json described(const answer::ArrayDescription& array) {
  return {{"name", array.name}, {"datatype", answer::name_of(array.type)}, {"shape", array.shape}};
}

}  // namespace

V2Request parse_v2(std::string_view body, int64_t json_bytes) {
  if (json_bytes > std::ssize(body))
    fail_usage("Inference-Header-Content-Length is ", json_bytes, ", the body has ", body.size(), " bytes");
  const std::string_view head = json_bytes < 0 ? body : body.substr(0, static_cast<size_t>(json_bytes));
  std::string_view binary = body.substr(head.size());
  const json document = parse_json<json>(head, "the body", kV2Limits);
  if (!document.is_object()) fail_usage("the body is no JSON object");
  V2Request out;
  if (const json* id = member(document, "id"); id && id->is_string()) out.id = id->get<std::string>();
  read_parameters(document, out);
  read_outputs(document, out);
  const json* inputs = member(document, "inputs");
  if (!inputs) return out;
  if (!inputs->is_array() || inputs->size() > kMostArrays)
    fail_usage("'inputs' must be a list of at most ", kMostArrays);
  for (size_t i = 0; i < inputs->size(); ++i)
    out.request.inputs.push_back(read_input((*inputs)[i], i, binary));
  if (!binary.empty()) fail_usage("the body has ", binary.size(), " bytes that belong to no input");
  return out;
}

V2Reply write_v2(const std::string& model, const V2Request& request, const answer::Reply& reply) {
  nlohmann::ordered_json head = {{"model_name", model}, {"model_version", "1"}};
  if (!request.id.empty()) head["id"] = request.id;
  head["outputs"] = nlohmann::ordered_json::array();
  std::string binary;
  bool has_binary = false;
  size_t listed = 0;
  const auto add = [&](const Array& array, bool as_binary) {
    nlohmann::ordered_json output = {
        {"name", array.name}, {"datatype", answer::name_of(array.type)}, {"shape", array.shape}};
    if (as_binary) {
      const std::string bytes = binary_of(array);
      output["parameters"] = {{"binary_data_size", bytes.size()}};
      binary += bytes, has_binary = true;
    } else {
      listed += size_of(array);
      if (listed > kMostListed)
        throw answer::TooLarge(text("the outputs up to '", array.name, "' have ", listed,
                                    " elements in JSON, must have at most ", kMostListed,
                                    ": request binary_data"));
      output["data"] = list_of(array);
    }
    head["outputs"].push_back(std::move(output));
  };
  std::vector<std::string> known;
  for (const Array& array : reply.outputs) known.push_back(array.name);
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const auto found = std::ranges::find(reply.outputs, request.outputs[i], &Array::name);
    if (found == reply.outputs.end())
      fail_usage("there is no output '", printable(request.outputs[i]), "', it must be ", join(known, ", "),
                 did_you_mean(request.outputs[i], known));
    add(*found, request.binary[i]);
  }
  if (request.outputs.empty())
    for (const Array& array : reply.outputs) add(array, request.all_binary);
  std::string body = head.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  const auto json_bytes = std::ssize(body);
  return {body + binary, has_binary ? json_bytes : -1};
}

nlohmann::ordered_json v2_metadata(const std::string& model, const answer::Description& description) {
  nlohmann::ordered_json out = {{"name", model}, {"versions", {"1"}}, {"platform", "tessera"}};
  out["inputs"] = out["outputs"] = nlohmann::ordered_json::array();
  for (const auto& input : description.inputs) out["inputs"].push_back(described(input));
  for (const auto& output : description.outputs) out["outputs"].push_back(described(output));
  out["parameters"] = {{"answer", description.kind}, {"alternatives", description.alternatives}};
  for (const auto& [key, value] : description.details.items()) out["parameters"][key] = value;
  return out;
}

}  // namespace tessera::serve
