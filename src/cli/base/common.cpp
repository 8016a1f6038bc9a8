#include "cli/base/common.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/control_characters.h"
#include "core/error.h"
#include "core/text.h"

namespace tessera::cli {
namespace {

// \uNNNN of a character of one to three bytes.
std::string escaped(std::string_view character) {
  uint32_t code = static_cast<unsigned char>(character[0]);
  if (character.size() > 1) code &= 0x3Fu >> (character.size() - 1);
  for (size_t i = 1; i < character.size(); ++i)
    code = code << 6 | (static_cast<unsigned char>(character[i]) & 0x3Fu);
  std::ostringstream out;
  out << "\\u" << std::hex << std::setfill('0') << std::setw(4) << code;
  return out.str();
}

}  // namespace

std::string value_text(const tasks::Metric& metric) { return value_text(metric, 1); }

std::string value_text(const tasks::Metric& metric, int digits) {
  if (!metric.measured) return "-";
  return metric.info.unit == tasks::Unit::share ? fixed(100 * metric.value, digits) + " %"
                                                : fixed(metric.value, 4);
}

std::string metrics_text(const std::vector<tasks::Metric>& metrics) {
  std::string out;
  for (const tasks::Metric& metric : metrics) out += text("  ", metric.info.name, " ", value_text(metric, 2));
  return out;
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  const std::string json = value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string out;
  for (size_t i = 0; i < json.size();) {
    const std::string_view character(json.data() + i, std::max<size_t>(1, utf8_length(json, i)));
    if (character != "\n" && is_control(character))  // inside a string, others are already escaped
      out += escaped(character);
    else
      out += character;
    i += character.size();
  }
  return out;
}

nlohmann::ordered_json json_of(const std::vector<OptionField>& fields) {
  nlohmann::ordered_json out;
  for (const OptionField& field : fields) {
    const std::optional<Value> value = field.get();
    if (!value) continue;
    nlohmann::ordered_json& entry = out[field.key];
    if (value->is_bool())
      entry = value->as_bool();
    else if (value->is_int())
      entry = value->as_int();
    else if (value->is_double())
      entry = value->as_double();
    else if (value->is_string())
      entry = value->as_string();
    else
      for (const Value& word : value->as_array()) entry.push_back(word.as_string());
  }
  return out;
}

std::ostream& people(bool json) { return json ? std::cerr : std::cout; }

void print_outcome(bool json, const nlohmann::ordered_json& outcome) {
  if (json) std::cout << json_text(outcome) << "\n";
}

int64_t batch_that_fits(int64_t asked, int64_t side) {
  constexpr int64_t kMostNumbers = int64_t{1} << 26;
  const int64_t numbers = 3 * std::max<int64_t>(1, side) * std::max<int64_t>(1, side);
  return std::clamp<int64_t>(kMostNumbers / numbers, 1, asked);
}

std::string one_line(const std::string& name) { return printable(name, 1000); }

void require_folder_of(const std::string& out) {
  const std::filesystem::path folder = std::filesystem::path(out).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    fail_usage("'", out, "' cannot be written: there is no folder '", folder.string(), "'");
}

std::string csv_of(const report::TableBlock& table) {
  std::string out;
  for (size_t c = 0; c < table.columns.size(); ++c) out += (c ? "," : "") + csv_field(table.columns[c].name);
  out += "\n";
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < row.size(); ++c) out += (c ? "," : "") + csv_field(row[c]);
    out += "\n";
  }
  return out;
}

namespace {

// True if a spreadsheet would run the field as a formula.
bool is_formula(const std::string& field) {
  if (field.size() < 2 || std::string_view("=+-@\t\r").find(field[0]) == std::string_view::npos) return false;
  const bool percent = field.ends_with(" %");
  return !parse_double(field.substr(field[0] == '+', field.size() - (field[0] == '+') - (percent ? 2 : 0)));
}

std::string csv_quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string out = "\"";
  for (const char c : field) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

}  // namespace

std::string csv_field(const std::string& field) {
  return csv_quoted((is_formula(field) ? "'" : "") + without_controls(field));
}

std::string csv_path(const std::string& path) { return csv_quoted((is_formula(path) ? "./" : "") + path); }

}  // namespace tessera::cli
