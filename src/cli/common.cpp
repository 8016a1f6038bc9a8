#include "cli/common.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"

namespace tessera::cli {

void add_compute_options(Arguments& command, std::string& device, std::string& precision, int64_t& threads) {
  command.add("--device", device, "cpu, cuda or auto").show_default();
  command.add("--precision", precision, "fp32, bf16, fp64, or int8 (CPU, without training)").show_default();
  command.add("--threads", threads, "compute threads, 0 = all cores").show_default().range(0, 1024);
}

void add_class_names(Arguments& command, std::string& file) {
  command.add("--class-names", file, "file with one class name a line (default: as the weights say)");
}

std::string value_text(const tasks::Metric& metric) {
  return metric.info.unit == tasks::Unit::share ? fixed(100 * metric.value, 1) + " %"
                                                : fixed(metric.value, 4);
}

std::string metrics_text(const std::vector<tasks::Metric>& metrics) {
  std::string out;
  for (const tasks::Metric& metric : metrics)
    out += text("  ", metric.info.name, " ", fixed(metric.value, 4));
  return out;
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string csv_field(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string out = "\"";
  for (const char c : field) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

}  // namespace tessera::cli
