#include "data/base/source_labels.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/base/table_columns.h"

namespace tessera::data {

ClassNames::ClassNames(std::vector<std::string> names, int64_t first)
    : names_(std::move(names)), first_(first) {
  for (size_t i = 0; i < names_.size(); ++i) places_.emplace(names_[i], static_cast<int64_t>(i));
}

std::string ClassNames::hint(std::string_view name) const {
  return hints_left_->fetch_sub(1) > 0 ? did_you_mean(name, names_) : "";
}

int64_t ClassNames::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? -1 : found->second;
}

namespace {

std::string shortened(std::string_view content) {
  constexpr size_t kMost = 40;
  return printable(content.substr(0, kMost)) + (content.size() > kMost ? "…" : "");
}

// Returns the class of a number; `first` is that of the first class.
int64_t checked_number(int64_t number, int64_t first, const std::string& where) {
  if (number < first && number >= 0)
    fail(where, " has label ", number, ", but the list of class names counts from ", first);
  if (number < 0 || number >= kMostClasses)
    fail(where, " has label ", number, ", must be 0 to the number of classes less one");
  return number - first;
}

JsonLabel json_label(const nlohmann::json& value, const std::string& where) {
  if (value.is_number_unsigned())
    return {std::to_string(std::min(value.get<uint64_t>(), static_cast<uint64_t>(INT64_MAX))), true};
  if (const auto number = value.is_number() ? whole_number(value) : std::nullopt)
    return {std::to_string(*number), true};
  if (!value.is_string())
    fail(where, ": a label is ", value.type_name(), ", must be a whole number or a class name");
  return {std::string(trim(value.get_ref<const std::string&>())), false};
}

// Returns the member with one label: 'label', or another usual title in objects without 'labels'. Null if there is none.
const nlohmann::json* label_of_object(const nlohmann::json& object) {
  if (const auto own = object.find("label"); own != object.end()) return &*own;
  return object.contains("labels") ? nullptr : label_member(object);
}

}  // namespace

int64_t read_label(std::string_view content, LabelText kind, const ClassNames& names,
                   const std::string& where) {
  const std::string_view word = trim(content);
  const auto number = parse_int(without_fraction(word));
  if (number && kind == LabelText::number_first) return checked_number(*number, names.first(), where);
  const int64_t named = names.find(word);
  if (named >= 0) return named;
  if (number) return checked_number(*number, names.first(), where);
  if (names.names().empty())
    fail(where, " has label '", shortened(word), "', must be a whole number: no class names are given");
  fail(where, " has label '", shortened(word), "', which is no class", names.hint(word));
}

std::vector<JsonLabel> json_labels(const nlohmann::json& object, const std::string& where) {
  if (!object.is_object()) fail(where, " is ", object.type_name(), ", must be an object with a 'label'");
  const auto several = object.find("labels");
  if (const nlohmann::json* one = label_of_object(object)) {
    if (!one->is_array()) return {json_label(*one, where)};
    fail(where, ": 'label' is an array; several labels belong in 'labels'");
  }
  if (several == object.end()) fail(where, " has neither 'label' nor 'labels'");
  if (!several->is_array()) fail(where, ": 'labels' is ", several->type_name(), ", must be an array");
  std::vector<JsonLabel> labels;
  for (const auto& value : *several) labels.push_back(json_label(value, where));
  return labels;
}

Label read_json_label(const nlohmann::json& object, const ClassNames& names, const std::string& where) {
  std::vector<int64_t> classes;
  for (const JsonLabel& label : json_labels(object, where)) {
    const auto kind = label.is_number ? LabelText::number_first : LabelText::name_first;
    classes.push_back(read_label(label.word, kind, names, where));
  }
  if (label_of_object(object)) return {std::move(classes), false};
  return several_labels(std::move(classes));
}

std::string_view without_fraction(std::string_view label) {
  if (!label.ends_with(".0")) return label;
  const std::string_view whole = label.substr(0, label.size() - 2);
  return parse_int(whole) ? whole : label;
}

std::optional<int64_t> whole_number(const nlohmann::json& value) {
  constexpr double kMost = 9007199254740992;  // 2^53
  if (value.is_string()) return parse_int(value.get_ref<const std::string&>());
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (std::abs(number) > kMost || number != std::trunc(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::optional<int64_t> class_number(const std::string& word) {
  if (const auto whole = parse_int(word)) return whole;
  const auto value = parse_double(word);
  if (!value || *value != std::trunc(*value) || std::abs(*value) > 1e9) return std::nullopt;
  return static_cast<int64_t>(*value);
}

Label several_labels(std::vector<int64_t> classes) {
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  return {std::move(classes), true};
}

}  // namespace tessera::data
