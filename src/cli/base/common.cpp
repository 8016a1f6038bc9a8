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

void add_compute_options(Arguments& command, std::string& device, std::string& precision, int64_t& threads) {
  command.add("--device", device, "cpu, cuda or auto").show_default();
  command.add("--precision", precision, "fp32, bf16, fp16, fp64, or int8 (CPU, without training)")
      .show_default();
  command.add("--threads", threads, "compute threads, 0 = all cores").show_default().range(0, 1024);
}

void add_class_names(Arguments& command, std::string& file) {
  command.add("--class-names", file, "file with one class name a line (default: as the weights say)");
}

void add_classes_in_order(Arguments& command, bool& in_order) {
  command.flag("--classes-in-order", in_order,
               "the set's classes are the weights' one for one, whatever they are called");
}

std::string value_text(const tasks::Metric& metric) {
  return metric.info.unit == tasks::Unit::share ? fixed(100 * metric.value, 1) + " %"
                                                : fixed(metric.value, 4);
}

std::string metrics_text(const std::vector<tasks::Metric>& metrics) {
  std::string out;
  for (const tasks::Metric& metric : metrics)
    out += text("  ", metric.info.name, " ",
                metric.info.unit == tasks::Unit::share ? fixed(100 * metric.value, 2) + " %"
                                                       : fixed(metric.value, 4));
  return out;
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  const std::string json = value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string out;
  for (size_t i = 0; i < json.size();) {
    const std::string_view character(json.data() + i, std::max<size_t>(1, utf8_length(json, i)));
    if (character != "\n" && is_control(character))  // within a string: the others are escaped already
      out += escaped(character);
    else
      out += character;
    i += character.size();
  }
  return out;
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

void refuse_given(std::initializer_list<std::pair<const char*, bool>> options, const std::string& reason) {
  for (const auto& [name, given] : options)
    if (given) fail_usage(name, " ", reason);
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

std::string csv_field(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string out = "\"";
  for (const char c : field) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

}  // namespace tessera::cli
